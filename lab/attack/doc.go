// Package attack harms a hub on purpose, as strangers, agents, tenants and people could, and
// reports whether the hub held.
//
// Contract:
//
//   - The table Attacks holds every attack. One entry adds one: the command, the list and the
//     tests walk the table.
//   - An attack uses only what its Caller could: a stranger knows the gateway's address, an agent has
//     the certificate of one accepted Cluster, a tenant writes in one namespace. Writes and reads of
//     tenants and people, and all preparation, go by the administrator's kubeconfig, unless the
//     attack is about rights.
//   - Run measures the hub from outside during an attack: the latency of an administrator's
//     requests, and the resident memory that the hub itself reports.
//   - An attack returns an error if the hub did what a hub must not do. Everything else that can
//     go wrong, such as an unreachable hub, is an error as well.
//   - What an attack creates is named "attacker" or "attacker-*", or lies in a namespace of that name,
//     and stays in the hub.
package attack
