// Package realnode runs one node of a member that really runs containers: the upstream
// kubelet and containerd, built from their Go modules, with runc and busybox of the
// machine; and upstream's metrics-server, as an image.
//
// Contract:
//
//   - Run blocks until ctx ends or a part of the node fails. It may be called once per
//     process, and wants root, cgroups (of version 1 or 2), and `runc` and a static
//     `busybox` in PATH; Missing says what is not there and how to get it.
//   - Everything of a node lives in PID and mount namespaces of its own, with a /run and a
//     /proc of its own, so that however Run ends, SIGKILL included, no process, mount or
//     socket of it is left. What a node stores is in Options.Dir; its containers are
//     started anew by the kubelet when Run is called again.
//   - A node's address is that of a network device which ends with Run. Pods have addresses
//     of the same /26 (see Subnet) that the machine reaches, and no other network. The Service
//     "kubernetes" has its address (see Services); others have none that leads anywhere, and
//     there is no DNS. The member's API server goes to their pods itself, for aggregated APIs and
//     webhooks.
//   - The kubelet asks the member's API server who somebody is that has no certificate of its
//     authority, and what anybody may do. Its own certificate it signs itself.
//   - The machine is left as it was, but for fs.inotify.max_user_instances, which is raised
//     to 1024 where it is less.
//   - Nothing is pulled. There is one image made from the machine's busybox, under the
//     name Image: sh, cat, tar, nc, httpd, sleep and so on; one of metrics-server, under the
//     name that upstream's manifests have for that release; and what Options.Images names.
//   - A pod whose resources are changed in place ends the kubelet, and with it the node: this
//     one has no cgroup for each pod, which upstream's takes for granted there.
//   - Linux only.
package realnode
