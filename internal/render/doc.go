// Package render turns what users wrote on the hub into what one member gets: it
// prunes templates down to the fields that were stated, applies override rules and
// assigned replicas, and builds the manifest of a row.
//
// Contract: a pure core. Values in, values out; nothing here talks, waits, logs or
// reads a clock. No argument is changed, and none is kept but the content that is compiled;
// results may share memory with arguments and with each other, and are not to be changed
// either. All functions may be called from many goroutines, and a Renderer or Targets from
// one at a time. Equal arguments give equal bytes: hashes of results name content.
//
// Stated is what law 9 says: a field that an Apply entry of managedFields owns or
// that the last-applied annotation holds; a field that another writer's entry owns,
// unless its value is the API's default; and so the number of replicas, which the API server's
// scale subresource may leave to nobody; nothing else.
package render
