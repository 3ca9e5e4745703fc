// Package member runs one real Kubernetes cluster inside the calling process: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as upstream builds them, and
// fake nodes that run no pods (kwok).
//
// Contract:
//
//   - Run owns its directory: certificates, kubeconfig (cluster admin) and etcd data live
//     there, and nothing outside is written. A second Run over the same directory, after
//     any end of the first, is the same cluster with the same data and credentials.
//   - Everything listens on loopback or on Unix sockets inside the directory.
//   - A process may call Run once. The linked components keep process-wide registries, and
//     Run changes the working directory, because socket paths must be short and therefore
//     relative.
//   - etcd does not call fsync. Data survives the death of the process, also by SIGKILL,
//     but not the death of the machine. This is acceptable for a lab only.
//   - There is no network and no container. Pods turn Ready within a second, pods of Jobs
//     succeed two seconds later, and the deletion of a pod is prompt. The annotations of
//     package lab change these times per pod. A namespace with pods takes 15 seconds to
//     vanish, because upstream's controller waits for half their grace period.
//   - Cloud features are simulated: the default StorageClass binds claims to volumes that
//     exist in name only, and Ingresses and Services of type LoadBalancer without a
//     class receive an address of a documentation range. There is no metrics API. Without fake nodes, pods
//     are real: the API server then reaches the backends of Services at the pods' own
//     addresses.
package member
