package explain

import "atoll.dev/atoll/internal/schedule"

// explainPodFit explains whether undivided pods fit in a cluster that is new to the Bundle.
func (in ExplanationInput) explainPodFit(c *ClusterExplanation, fit schedule.PodFit) {
	if c.PodFit, c.PodFitReason = fit.When, fit.Reason; c.PodFitReason != "" && in.mayRead(fit.Item) {
		c.PodFitReason = fit.Item.Kind + "/" + fit.Item.Name + ": " + c.PodFitReason
	}
}

// podFitText returns when the pods fit, and why not now.
func (c ClusterExplanation) podFitText() string {
	text := map[schedule.FitTime]string{schedule.FitNow: "pods fit now", schedule.FitAfterScaleUp: "pods fit after a scale-up", schedule.FitNever: "pods never fit"}[c.PodFit]
	if c.PodFitReason != "" {
		text += " (" + c.PodFitReason + ")"
	}
	return text
}

// fitText returns when the replicas without a place fit, as a line.
func (s Shortage) fitText() string {
	if s.Fit == "" {
		return ""
	}
	return "    " + s.Fit + ".\n"
}
