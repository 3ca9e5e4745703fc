package admission

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/atoll"
)

// UserWriteRecorder notes the writes of users, for traces. It admits everything.
type UserWriteRecorder struct {
	// Own reports whether a user is the hub itself, whose writes are not noted.
	Own  func(user.Info) bool
	Note func(ctx context.Context, key atoll.ItemKey, operation string, received time.Time)
}

// Handles implements admission.Interface.
func (UserWriteRecorder) Handles(op admission.Operation) bool { return op != admission.Connect }

// Validate implements admission.ValidationInterface.
func (w UserWriteRecorder) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.IsDryRun() || w.Own(a.GetUserInfo()) {
		return nil
	}
	received, ok := request.ReceivedTimestampFrom(ctx)
	if !ok {
		received = time.Now()
	}
	kind := a.GetKind()
	w.Note(ctx, atoll.ItemKey{Group: kind.Group, Kind: kind.Kind, Namespace: a.GetNamespace(), Name: a.GetName()}, string(a.GetOperation()), received)
	return nil
}
