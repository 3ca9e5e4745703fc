// Package userfields finds what users wrote in an object of the hub. It prunes a template to the
// fields that users stated, and fingerprints these fields, so that a change by the hub is no change.
//
// Contract: a pure core. It takes values and returns values, without client, clock, logger or
// goroutine. It changes no argument and keeps none; results may share memory with arguments and are
// read-only. All functions may run concurrently. Equal arguments give equal bytes.
//
// A field is stated where an Apply entry of managedFields owns it, or where the last-applied
// annotation holds it. A field that another entry owns is stated unless its value is the API's
// default. The number of replicas counts as such a field even without an owner: the API server's
// scale subresource may leave it without one. No other field is stated.
package userfields
