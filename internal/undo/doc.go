// Package undo keeps, for a stated time, what users change and delete of placed objects, and answers what an
// undo would go back to.
//
// Contract: a Keeper sees each request of the hub's API after admission, with its user. It keeps the former
// content when the request has succeeded, as a Secret in the system namespace. A change that cannot be kept
// fails no request. Each hub of several keeps the changes of its own
// requests and follows those of the others. Contents are read on demand; a Keeper holds their descriptions
// alone. A Keeper is safe for concurrent use; Run is called once.
package undo
