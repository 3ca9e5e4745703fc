// Package payloads renders the manifest that a row's cluster is to hold, and keeps what
// is rendered and encoded for further clusters.
//
// Contract: a manifest is a pure function of one ManifestInput. The input is read once,
// at one moment. Its hash is the cache key, and the manifest is rendered from the same
// value, so that a table that changes in between changes neither. Rows of equal inputs
// share one rendering and one encoding, whatever the number of clusters. The cache is
// bounded in bytes.
//
// Cache and Renderer are safe for concurrent use. Contents and payloads are shared and
// never changed.
package payloads
