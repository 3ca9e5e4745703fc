package preview

import "atoll.dev/atoll/internal/schedule"

// UnfitCluster is a cluster that would be new to the Bundle, and where its pods do not fit now.
type UnfitCluster struct {
	Cluster string `json:"cluster"`
	// When they fit: AfterScaleUp or Never.
	When schedule.FitTime `json:"when"`
	Why  string           `json:"why,omitempty"`
}

// addUnfitCluster lists the cluster of a verdict where undivided pods do not fit now.
func (c *bundleComparison) addUnfitCluster(b *BundlePlan, v *schedule.Verdict) {
	fit := v.PodFit()
	if fit.When != schedule.FitAfterScaleUp && fit.When != schedule.FitNever {
		return
	}
	if c.in.mayReadItem(fit.Item) {
		fit.Reason = fit.Item.Kind + "/" + fit.Item.Name + ": " + fit.Reason
	}
	b.Unfit = append(b.Unfit, UnfitCluster{v.Cluster, fit.When, fit.Reason})
}

// fitText returns when the replicas without a place fit, as a line.
func (s Shortage) fitText() string {
	if s.Fit == "" {
		return ""
	}
	return "    " + s.Fit + "\n"
}
