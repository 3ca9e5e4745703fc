// Package inventory checks the ClusterProfiles of Atoll's hubs against those of SIG
// Multicluster, by upstream's own types, schema and client configuration, which are no
// dependency of the programs.
//
// Contract: it has tests only.
package inventory
