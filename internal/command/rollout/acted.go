package rollout

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// hasPersonActed reports whether a person has done already what a rollout waits for, so that its status is of before.
func hasPersonActed(b *v1alpha1.Bundle, reason atoll.Reason, now time.Time) bool {
	r := b.Status.Rollout
	if r == nil {
		return false
	}
	switch reason {
	case atoll.ReasonRolloutPaused:
		return b.Spec.Pause == nil
	case atoll.ReasonChangesFrozen:
		return b.Spec.FreezeExemption != nil && r.Since != nil && !b.Spec.FreezeExemption.At.Before(r.Since)
	case atoll.ReasonStageFailed, atoll.ReasonGateFailed, atoll.ReasonTooManyUnhealthy, atoll.ReasonRolledBack:
		return b.Spec.Resume != nil && r.Since != nil && !b.Spec.Resume.At.Before(r.Since)
	case atoll.ReasonWaitsForApproval:
		i := slices.IndexFunc(r.Gates, func(g v1alpha1.GateStatus) bool { return isApprovalAwaited(b, &g) })
		if i < 0 {
			return len(r.Gates) > 0 // the gate has passed
		}
		return hasApprovals(b, &r.Gates[i], now)
	}
	return false
}

// isHaltOver reports whether no freeze and no policy holds what a status shows as held, so that the status is of before. If the user may not
// read the object, the status counts.
func (f *follower) isHaltOver(ctx context.Context, b *v1alpha1.Bundle, reason atoll.Reason) bool {
	if reason == atoll.ReasonChangesFrozen {
		settings, err := client.Get[v1alpha1.HubSettings](ctx, f.client, v1alpha1.GroupVersion.WithResource("hubsettings"), "", v1alpha1.HubSettingsName)
		return apierrors.IsNotFound(err) || err == nil && !settings.Spec.Freeze.IsActive(time.Now())
	}
	if !suspendsFor(reason, b.Spec.Suspension) {
		return true
	}
	resource, namespace := "", ""
	switch b.Spec.Source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		resource, namespace = "propagationpolicies", b.Namespace
	case v1alpha1.SourceClusterPropagationPolicy:
		resource = "clusterpropagationpolicies"
	default:
		return false
	}
	policy, err := client.Get[v1alpha1.PropagationPolicy](ctx, f.client, v1alpha1.GroupVersion.WithResource(resource), namespace, b.Spec.Source.Name)
	return err == nil && !suspendsFor(reason, policy.Spec.Suspension)
}

// suspendsFor reports whether a suspension is one that the reason is about: of decisions, or of the changes of some clusters or all.
func suspendsFor(reason atoll.Reason, s *v1alpha1.Suspension) bool {
	if reason == atoll.ReasonSchedulingSuspended {
		return s.SuspendsScheduling()
	}
	return s.SuspendsChanges()
}

// isApprovalAwaited reports whether a gate waits for people, by the last status.
func isApprovalAwaited(b *v1alpha1.Bundle, g *v1alpha1.GateStatus) bool {
	stated := b.Spec.Rollout.FindGate(g.Stage, g.Name)
	return g.State == v1alpha1.GateWaiting && stated != nil && stated.Approval != nil
}

// hasApprovals reports whether as many users have approved as a gate needs, each within its validity. An approval that has
// expired opens nothing, so that a person must act again.
func hasApprovals(b *v1alpha1.Bundle, g *v1alpha1.GateStatus, now time.Time) bool {
	stated := b.Spec.Rollout.FindGate(g.Stage, g.Name).Approval
	by, _ := stated.ListApprovers(g.Stage, g.Revision, b.Spec.Approvals, now)
	return len(by) >= stated.NeededApprovers()
}
