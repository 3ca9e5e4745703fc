// Package member runs one real Kubernetes cluster inside the calling process:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler as upstream
// builds them, and nodes that only claim to run pods (kwok).
//
// Contract:
//
//   - Run owns its directory: certificates, kubeconfig (cluster admin) and etcd
//     data live there, and nothing outside is written. A second Run over the
//     same directory, after the first ended in any way, is the same cluster
//     with the same data and the same credentials.
//   - Everything listens on loopback or on Unix sockets inside the directory.
//   - A process may call Run once: the linked components keep process-wide
//     registries, and Run changes the working directory (socket paths are
//     relative, so that a long directory name is no problem).
//   - etcd does not call fsync. Data survives the death of the process, also by
//     SIGKILL, but not the death of the machine. That is right for a lab and
//     for nothing else.
//   - There is no network and no container: pods turn Ready within a second,
//     pods of Jobs succeed two seconds later, deletion of a pod is prompt. The
//     annotations of package lab bend that per pod. A namespace with pods takes
//     15 seconds to go, as upstream's controller waits for half their grace.
//   - What a cloud would add is made up: the default StorageClass binds claims
//     to volumes that exist in name only, and Services of type LoadBalancer and
//     Ingresses get an address of a documentation range. There is no metrics
//     API. Without fake nodes, pods are taken for real: the API server then reaches what is
//     behind Services at the pods' own addresses.
package member
