package get

import (
	"context"
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/failover/loss"
	"atoll.dev/atoll/internal/phrase"
)

// failoverTerms returns when the hub taints lost clusters; nil: it taints none, or the user may not read the settings.
func failoverTerms(ctx context.Context, c *client.Connection) *v1alpha1.ClusterFailover {
	settings, err := client.Get[v1alpha1.HubSettings](ctx, c, client.HubSettings, "", v1alpha1.HubSettingsName)
	if err != nil {
		return nil
	}
	return settings.Spec.Failover
}

// failoverText returns when the hub taints a lost cluster, or since when it has the taint.
func failoverText(c *v1alpha1.Cluster, s *v1alpha1.ClusterFailover, now time.Time) string {
	if i := slices.IndexFunc(c.Spec.Taints, v1alpha1.Taint.IsOfLoss); i >= 0 {
		since := ""
		if at := c.Spec.Taints[i].TimeAdded; at != nil {
			since = " since " + phrase.FormatTime(at.Time)
		}
		return "; tainted as lost" + since + ", so that Bundles with a place elsewhere leave it"
	}
	at, isLost := loss.NextTaintTime(c, s)
	switch {
	case !isLost:
		return ""
	case at.After(now):
		return "; the hub taints it in " + phrase.FormatDuration(at.Sub(now).Round(time.Second)) + ", and Bundles with a place elsewhere leave it"
	}
	return "; the hub is about to taint it (see the condition FailoverPaused of the HubSettings)"
}
