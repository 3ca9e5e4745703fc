// Package clustermatch evaluates cluster affinities and field requirements on a ClusterView.
//
// Contract: pure functions, which may be called concurrently. A malformed selector matches no
// cluster, and the reason names the error.
package clustermatch
