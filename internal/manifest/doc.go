// Package manifest builds what one cluster gets of a Bundle: the items under the rules that match
// the cluster, the tombstones of what it must not keep, and the Provenance of each changed field.
//
// Contract: a pure core. It takes values and returns values, without client, clock, logger or
// goroutine. It changes no argument, and keeps none but the content of a Renderer. Results may share
// memory with arguments and with each other, and are read-only. Functions may run concurrently;
// a Renderer and a VariantCache serve one goroutine at a time. Equal arguments give equal bytes:
// hashes of results name content.
package manifest
