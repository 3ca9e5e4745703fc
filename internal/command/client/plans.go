package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Plan is what waits for a decision about one Bundle.
type Plan struct {
	// Recalled: members recorded the removals, and the hub was restored from before
	// them, so that they may be kept as well as confirmed.
	Recalled bool
	// Lines name what waits, one per row.
	Lines []string
}

// AnswerPlan writes a decision about a plan as an annotation of its Bundle.
func (c *Connection) AnswerPlan(ctx context.Context, o Object, uid types.UID, annotation, plan string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid, "annotations": map[string]string{annotation: plan}},
	})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(o.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	if err != nil {
		return c.ExplainError(err)
	}
	return nil
}

// SetClusterRemoval states how a cluster leaves the fleet; nil: it stays.
func (c *Connection) SetClusterRemoval(ctx context.Context, cluster *v1alpha1.Cluster, removal *v1alpha1.ClusterRemoval) error {
	spec := map[string]any{"removal": nil}
	if removal != nil { // a merge leaves alone what it does not name
		r := map[string]any{"mode": removal.Mode, "force": nil, "confirm": nil}
		if removal.Force {
			r["force"] = true
		}
		if removal.Confirm != "" {
			r["confirm"] = removal.Confirm
		}
		spec["removal"] = r
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cluster.UID}, "spec": spec})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(Clusters).Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return c.ExplainError(err)
	}
	return nil
}

// PendingPlans returns the plans that rows of one Bundle wait for, by hash, but for those that its annotations
// have decided already.
func PendingPlans(annotations map[string]string, rows []Row) map[string]Plan {
	waiting := map[string]Plan{}
	for _, r := range rows {
		reason := atoll.ParseRowReason(r.Spec.Reason)
		if reason.Plan == "" || reason.Plan == annotations[atoll.AnnotationConfirm] || reason.Plan == annotations[atoll.AnnotationKeep] {
			continue
		}
		p := waiting[reason.Plan]
		p.Recalled = p.Recalled || reason.Reason == atoll.ReasonRemovedBeforeRestore
		p.Lines = append(p.Lines, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", r.Cluster, reason.Reason, reason.Text), ": "))
		waiting[reason.Plan] = p
	}
	return waiting
}
