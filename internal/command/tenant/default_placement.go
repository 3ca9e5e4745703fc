package tenant

import (
	"context"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
)

// describeDefaultPlacement returns a sentence about the tenant's objects that no policy selects. It is
// empty when the hub's settings cannot be read: the tenant is complete without the sentence.
func describeDefaultPlacement(ctx context.Context, c *client.Connection) string {
	settings, err := client.Get[v1alpha1.HubSettings](ctx, c, client.HubSettings, "", v1alpha1.HubSettingsName)
	if err != nil && !client.IsGone(err) {
		return ""
	}
	var d v1alpha1.DefaultPlacement
	if err == nil && settings.Spec.DefaultPlacement != nil {
		d = *settings.Spec.DefaultPlacement
	}
	const needsNothing = "An object that no policy selects goes to "
	switch d.Type {
	case v1alpha1.DefaultPlacementAll:
		return needsNothing + "all clusters of these sets."
	case v1alpha1.DefaultPlacementClusterSet, v1alpha1.DefaultPlacementClusterPlacement:
		return needsNothing + "those clusters of these sets that " + string(d.Type) + " " + d.Name + " has."
	}
	return `An object that no policy selects stays on the hub. To send it to all clusters of these sets:
  kubectl patch hubsettings ` + v1alpha1.HubSettingsName + ` --type=merge -p '{"spec":{"defaultPlacement":{"type":"All"}}}'`
}
