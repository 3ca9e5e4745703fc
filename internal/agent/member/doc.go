// Package member is the member's API as the agent uses it: what it serves, and
// reading, applying and deleting objects of any kind.
//
// Contract:
//
//   - Light: no clientset, no scheme of all kinds, no OpenAPI. Objects travel as
//     unstructured JSON, metadata as protobuf.
//   - What the member serves (APIs) is an immutable snapshot; Discover replaces
//     it. A group that does not answer keeps what was known of it, so that a
//     failing API service is never taken for one that is gone.
//   - Every request ends within RequestTimeout.
//   - A Client is safe for concurrent use.
package member
