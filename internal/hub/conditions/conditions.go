// Package conditions tells, in the status of the HubSettings, what the hub's admin should
// know of the hub.
//
// Contract: a condition is there while it is true, and nothing is written while nothing
// changes; the HubSettings are made when there is first something to tell. Of several hubs
// the one that leads calls Tell, and not twice at a time.
package conditions

import (
	"context"
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/trust/standing"
)

// Owner is the field manager of what the hub writes of itself.
const Owner = client.FieldOwner("atoll-hub")

// Tell the conditions that follow from how things stand, where the HubSettings have others.
func Tell(ctx context.Context, c client.Client, s standing.Standing, now metav1.Time) error {
	hub := &v1alpha1.HubSettings{}
	hub.Name = v1alpha1.HubSettingsName
	err := c.Get(ctx, client.ObjectKeyFromObject(hub), hub)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the HubSettings: %w", err)
	}
	absent := err != nil
	next := hub.DeepCopy()
	conditions(&next.Status, s, hub.Generation, now)
	if apiequality.Semantic.DeepEqual(hub.Status, next.Status) {
		return nil
	}
	if absent {
		if err := c.Create(ctx, hub, Owner); err != nil {
			return fmt.Errorf("make the HubSettings: %w", err)
		}
		next.ObjectMeta = hub.ObjectMeta
	}
	if err := c.Status().Update(ctx, next, Owner); err != nil {
		return fmt.Errorf("write the status of the HubSettings: %w", err)
	}
	return nil
}

// conditions that follow from how things stand.
func conditions(status *v1alpha1.HubSettingsStatus, s standing.Standing, generation int64, now metav1.Time) {
	set := func(kind string, is bool, reason, message string) {
		if !is {
			meta.RemoveStatusCondition(&status.Conditions, kind)
			return
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: now, ObservedGeneration: generation,
		})
	}
	set(v1alpha1.HubCertificatesExpiring, len(s.Warnings) > 0, "Expiring", strings.Join(s.Warnings, "; "))
	reason, message := "ReadyToFinish", fmt.Sprintf("all agents that are in touch, %d, have certificates of the new CA; %d are away and will come back by their key. On the hub run: atoll ca finish", s.Agents.Current, s.Agents.Away)
	if s.Agents.Former > 0 {
		reason, message = "AgentsFollow", fmt.Sprintf("%d agents have certificates of the new CA, %d that are in touch do not yet", s.Agents.Current, s.Agents.Former)
	}
	set(v1alpha1.HubRotatingCAs, s.RotatingSince != nil, reason, message)
}
