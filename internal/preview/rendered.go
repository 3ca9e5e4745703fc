package preview

import (
	"encoding/json"

	"atoll.dev/atoll/internal/atoll"
)

// Rendered is what clusters get of one object.
type Rendered struct {
	// Contents that differ, each with its clusters.
	Contents []RenderedContent `json:"contents"`
	// More clusters have the object, and no content here.
	More int `json:"more,omitempty"`
}

// RenderedContent of an object in each of some clusters.
type RenderedContent struct {
	// Clusters by name; at least one.
	Clusters []string `json:"clusters"`
	// APIVersion in which the object is applied.
	APIVersion string `json:"apiVersion"`
	// Object with the fields that Atoll states; empty where Error is set.
	Object json.RawMessage `json:"object,omitempty"`
	// MemberOwned are JSON Pointers of fields that belong to the clusters.
	MemberOwned []string `json:"memberOwned,omitempty"`
	// Error is why the object could not be rendered: the clusters keep what they have.
	Error string `json:"error,omitempty"`
	// Interpreters by which agents keep fields that the clusters set.
	Interpreters []atoll.Interpreter `json:"interpreters,omitempty"`
}
