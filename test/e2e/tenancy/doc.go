// Package tenancy tests what users of one hub can do to each other: who may place
// where, what the shipped roles may, and what tenants try.
//
// Contract: a hub of its own, the built binary, with Clusters that no agent serves, since
// what is tested is decided on the hub. Each test keeps to names of its own, and what it
// applies goes with it.
package tenancy
