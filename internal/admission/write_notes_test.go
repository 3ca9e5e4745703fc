package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/internal/atoll"
)

// Only writes of users to objects themselves are noted.
func TestWritesOfUsersAreNoted(t *testing.T) {
	var noted []string
	w := UserWriteRecorder{
		Own: func(u user.Info) bool { return u.GetName() == "hub" },
		Note: func(_ context.Context, key atoll.ItemKey, operation string, received time.Time) {
			if received.IsZero() {
				t.Error("without a time")
			}
			noted = append(noted, operation+" "+key.Kind+" "+key.Namespace+"/"+key.Name)
		},
	}
	for _, c := range []struct {
		by, subresource string
		dryRun          bool
	}{{"ann", "", false}, {"ann", "status", false}, {"ann", "", true}, {"hub", "", false}} {
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Kind: "ConfigMap"}, "ns", "a", schema.GroupVersionResource{}, c.subresource, admission.Update, nil, c.dryRun, &user.DefaultInfo{Name: c.by})
		if err := w.Validate(t.Context(), a, nil); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(noted, []string{"UPDATE ConfigMap ns/a"}) {
		t.Errorf("%q", noted)
	}
	if w.Handles(admission.Connect) || !w.Handles(admission.Delete) {
		t.Error("it handles other operations")
	}
}
