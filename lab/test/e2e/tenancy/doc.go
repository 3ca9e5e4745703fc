// Package tenancy tests the isolation between users of one hub: the right to place, the
// rights of the shipped roles, and the attempts of tenants.
//
// Contract: the tests use a hub of their own, the built binary, with Clusters without
// agents, because the decisions are the hub's. Each test uses names of its own, and its
// objects end with it.
package tenancy
