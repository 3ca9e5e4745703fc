// Package realnode runs one node of a member that really runs containers. It uses the
// upstream kubelet and containerd, built from their Go modules, and runc and busybox of the
// machine. Upstream's metrics-server is an image.
//
// Contract:
//
//   - Run blocks until ctx ends or a part of the node fails. A process may call it once. It
//     needs root, cgroups (version 1 or 2), and `runc` and a static `busybox` in PATH.
//     MissingRequirements returns the missing ones and how to install them.
//   - Everything of a node lives in PID and mount namespaces of its own, with its own /run
//     and /proc. After any end of Run, SIGKILL included, no process, mount or socket of it
//     remains. The node's data is in Options.Dir. When Run is called again, the kubelet
//     starts its containers again.
//   - The node's address belongs to a network device that ends with Run. Pods have
//     addresses of the same /26 (see PodSubnet) that the machine reaches, and no other
//     network. The Service "kubernetes" has its address (see MemberServiceRange). Addresses of
//     other Services lead nowhere, and there is no DNS. The member's API server connects to
//     their pods itself, for aggregated APIs and webhooks.
//   - The kubelet delegates to the member's API server the authentication of clients
//     without a certificate of its authority, and all authorization. It signs its own
//     certificate itself.
//   - The machine stays unchanged, except that fs.inotify.max_user_instances is raised to
//     1024 if it is less.
//   - Nothing is pulled. There is one image made from the machine's busybox, under the name
//     BusyboxImage: sh, cat, tar, nc, httpd, sleep and so on. There is one of
//     metrics-server, under the name in upstream's manifests for that release.
//     Options.Images adds others.
//   - A change of a pod's resources in place ends the kubelet, and with it the node: this
//     node has no cgroup for each pod, which upstream requires there.
//   - Linux only.
package realnode
