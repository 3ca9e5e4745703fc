// Package admission is Atoll's own admission in the hub's API server: it puts the
// finalizer on templates that are placed, and refuses what could not be honoured or
// what its writer may not do, with the field's path and the reason.
//
// Contract: one plugin, safe for concurrent use, called for every write from before
// the hub's other parts exist. What it needs of them it takes from Options.Hub; as
// long as that has nothing, templates pass without the finalizer (bind puts it on
// before their first Revision) and checks that need to know other objects are left
// out. The hub's own identities may write anything. It calls no network, who may do
// what is asked of the API server's own authorizer; but for a confirmation that a cluster be
// cleaned, for which Revisions are read that are not in memory.
package admission
