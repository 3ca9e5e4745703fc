// Package admission is Atoll's own admission in the hub's API server. It puts the finalizer on
// templates that are placed. It refuses fields that could not be honoured, and writes without the
// right, with the field's path and the reason.
//
// Contract: one plugin, safe for concurrent use, called for every write from before the hub's
// other parts exist. It takes the other parts from Options.Hub. As long as that is empty,
// templates pass without the finalizer (the binder adds it before their first Revision), and
// checks that read other objects are left out. The hub's own identities may write anything. It
// makes no network calls: the API server's own authorizer answers about rights. There are two
// exceptions. Revisions outside of the tables are read for the confirmation of a clean removal.
// Members are asked for at most a second before a user deletes a namespace, and no answer refuses it.
package admission
