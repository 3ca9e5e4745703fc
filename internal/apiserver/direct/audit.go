package direct

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AuditedPatch is a direct write to a user's object, in the terms of the API.
type AuditedPatch struct {
	Kind            schema.GroupVersionKind
	Resource        string
	Namespace, Name string
	// Patch is the equal merge patch.
	Patch []byte
}

// Auditor reports a write to the audit log before the write is tried. ok is false where the log
// does not take the report, and then the write is not tried. end reports the HTTP status of the
// write's end.
type Auditor func(ctx context.Context, p AuditedPatch) (end func(status int32), ok bool)
