package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
)

// waitForCRDEstablished waits a short while until the CRD is served, so that its objects
// can follow in the same pass.
func (e *MemberApplier) waitForCRDEstablished(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	for try := range 25 {
		crd, err := e.o.Client.Get(ctx, res, "", p.Key.Name)
		switch {
		case apierrors.IsNotFound(err):
			e.scheduleRecheck(p.Key)
			return nil
		case err != nil:
			return failureFromError(err, p.Key)
		case isEstablished(crd):
			v := e.observeObject(crd)
			e.mu.Lock()
			e.recordAppliedView(v)
			e.mu.Unlock()
			e.o.Client.AddKnownResources(servedVersions(crd)...)
			e.APIsChanged()
			return nil
		}
		if !pause.WaitFor(ctx, time.Duration(20+20*try)*time.Millisecond) {
			return nil
		}
	}
	return &Failure{
		Reason: atoll.ReasonNotEstablished, Waits: true, Most: 30 * time.Second,
		Message: "the member has not established the definition yet; its conditions have the reason",
	}
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" {
			return m["status"] == "True"
		}
	}
	return false
}
