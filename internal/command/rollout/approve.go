package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

func newApproveCommand(flags *client.ConnectionFlags) *cobra.Command {
	var stage, revision string
	cmd := &cobra.Command{
		Use: "approve KIND/NAME [-n NAMESPACE] [--stage STAGE]", Short: "Approve the present revision for a stage", Args: cobra.ExactArgs(1),
		Long: `Approve the present revision for a stage.

It needs the right to patch the Bundle, and the verb approve on it. The approval counts
for one revision: a later change needs another one.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, bundle, of, err := findBundle(cmd.Context(), flags, args[0])
			if err != nil {
				return err
			}
			approval, err := newApproval(bundle, stage, revision)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"uid": bundle.UID, "resourceVersion": bundle.ResourceVersion}, // another approval is not lost
				"spec":     map[string]any{"approvals": append(slices.Clone(bundle.Spec.Approvals), approval)},
			})
			if err != nil {
				return err
			}
			_, err = c.Dynamic.Resource(of.Resource).Namespace(of.Namespace).Patch(cmd.Context(), of.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
			if err != nil {
				return c.ExplainError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "revision %s of %s is approved for stage %s; follow it with: atoll rollout status %s\n", approval.Revision, args[0], approval.Stage, args[0])
			return err
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&stage, "stage", "", "stage whose gate waits; needed where several do")
	cmd.Flags().StringVar(&revision, "revision", "", "refuse unless the Bundle is at this revision")
	return cmd
}

// newApproval returns an approval of the present revision. Without a stage it is for the only one that waits for it.
func newApproval(bundle *v1alpha1.Bundle, stage, revision string) (v1alpha1.RolloutApproval, error) {
	out := v1alpha1.RolloutApproval{Stage: stage, Revision: bundle.Status.Revision}
	if out.Revision == "" {
		return out, fmt.Errorf("it has no revision yet")
	}
	if revision != "" && revision != out.Revision {
		return out, fmt.Errorf("it is at revision %s, and not at %s: look at what changed first", out.Revision, revision)
	}
	if stage != "" {
		return out, nil
	}
	switch stages := stagesToApprove(bundle); len(stages) {
	case 0:
		return out, fmt.Errorf("no stage waits for an approval; --stage approves one beforehand")
	case 1:
		out.Stage = stages[0]
		return out, nil
	default:
		return out, fmt.Errorf("stages %s wait for an approval: name one with --stage", strings.Join(stages, ", "))
	}
}

// stagesToApprove returns the stages with an approval gate that waits.
func stagesToApprove(bundle *v1alpha1.Bundle) (stages []string) {
	if bundle.Status.Rollout == nil || bundle.Spec.Rollout == nil {
		return nil
	}
	for _, g := range bundle.Status.Rollout.Gates {
		if g.State == v1alpha1.GateWaiting && isApprovalGate(bundle.Spec.Rollout, g.Stage, g.Name) && !slices.Contains(stages, g.Stage) {
			stages = append(stages, g.Stage)
		}
	}
	return stages
}

func isApprovalGate(r *v1alpha1.Rollout, stage, name string) bool {
	return slices.ContainsFunc(r.ListStages(), func(s v1alpha1.RolloutStage) bool {
		return s.Name == stage && slices.ContainsFunc(slices.Concat(s.GatesBefore, s.GatesAfter), func(g v1alpha1.RolloutGate) bool { return g.Name == name && g.Approval != nil })
	})
}
