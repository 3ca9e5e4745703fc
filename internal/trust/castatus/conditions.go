package castatus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/standing"
)

// fieldOwner of what the hub writes of itself.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// UpdateHubSettingsStatus writes the conditions that follow from the status, where the HubSettings have others.
func UpdateHubSettingsStatus(ctx context.Context, c client.Client, s standing.CAStatus, now metav1.Time) error {
	hub := &v1alpha1.HubSettings{}
	hub.Name = v1alpha1.HubSettingsName
	err := c.Get(ctx, client.ObjectKeyFromObject(hub), hub)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the HubSettings: %w", err)
	}
	absent := err != nil
	next := hub.DeepCopy()
	setConditions(&next.Status, s, hub.Generation, now)
	if absent && !slices.ContainsFunc(next.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue }) {
		return nil
	}
	if apiequality.Semantic.DeepEqual(hub.Status, next.Status) {
		return nil
	}
	if absent {
		if err := c.Create(ctx, hub, fieldOwner); err != nil {
			return fmt.Errorf("make the HubSettings: %w", err)
		}
		next.ObjectMeta = hub.ObjectMeta
	}
	if err := c.Status().Update(ctx, next, fieldOwner); err != nil {
		return fmt.Errorf("write the status of the HubSettings: %w", err)
	}
	return nil
}

// setConditions sets the conditions that follow from the status.
func setConditions(status *v1alpha1.HubSettingsStatus, s standing.CAStatus, generation int64, now metav1.Time) {
	set := func(kind string, is bool, normal, reason atoll.Reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: string(normal), LastTransitionTime: now, ObservedGeneration: generation}
		if is {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(reason), message
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	set(v1alpha1.HubCertificatesExpiring, len(s.Warnings) > 0, atoll.ReasonNoneExpiring, atoll.ReasonExpiring, strings.Join(s.Warnings, "; "))
	reason, message := atoll.ReasonReadyToFinish, fmt.Sprintf("all agents that are in touch, %d, have certificates of the new CA; %d are away and will come back by their key. On the hub run: atoll ca finish", s.Agents.Current, s.Agents.Away)
	if s.Agents.Former > 0 {
		reason, message = atoll.ReasonAgentsFollow, fmt.Sprintf("%d agents have certificates of the new CA, %d that are in touch do not yet", s.Agents.Current, s.Agents.Former)
	}
	set(v1alpha1.HubRotatingCAs, s.RotatingSince != nil, atoll.ReasonNotRotating, reason, message)
}
