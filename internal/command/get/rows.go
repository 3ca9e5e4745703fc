package get

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
)

func newGetRowsCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &getOptions{flags: flags}
	var cluster string
	cmd := &cobra.Command{
		Use:     "rows [BUNDLE...]",
		Aliases: []string{"row"},
		Short:   "Show what each cluster makes of each Bundle",
		Long: `Show what each cluster makes of each Bundle: what the hub orders there (PHASE),
what the cluster last reported (STATE), and what is in the way.

Rows lie in TargetSlices, which only administrators may read.`,
		RunE: func(cmd *cobra.Command, bundles []string) error {
			c, err := o.connectHub()
			if err != nil {
				return err
			}
			rows, err := client.ListRows(cmd.Context(), c, "", func(r client.Row) bool {
				return (o.all || r.Namespace == c.Namespace) && (cluster == "" || r.Cluster == cluster) &&
					(len(bundles) == 0 || slices.Contains(bundles, r.Bundle))
			})
			if err != nil {
				return err
			}
			if done, err := o.format.PrintStructured(cmd.OutOrStdout(), rows); done {
				return err
			}
			if o.absent, err = absentClusters(cmd.Context(), c, o.now); err != nil {
				return err
			}
			return o.printRows(cmd.OutOrStdout(), rows, c.Namespace)
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "only rows of this cluster")
	o.addNamespaceFlags(cmd)
	o.format.AddTo(cmd.Flags(), "json", "yaml", "wide")
	return cmd
}

// clusterAbsence is the absence of a cluster: it is away, or checks in and is not there all the time.
type clusterAbsence struct {
	away    bool
	checkIn string
}

// nextCheckInNote returns the time until when the cluster can send nothing.
func (a clusterAbsence) nextCheckInNote() string {
	if a.checkIn == "" {
		return ""
	}
	return ": the cluster " + a.checkIn
}

// absentClusters returns the disconnected and waiting clusters by name, with the cause of the
// absence.
func absentClusters(ctx context.Context, c *client.Connection, now time.Time) (map[string]clusterAbsence, error) {
	clusters, err := client.List[v1alpha1.Cluster](ctx, c, client.Clusters, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]clusterAbsence{}
	for _, one := range clusters {
		if a := absenceOf(one, now); a != (clusterAbsence{}) {
			out[one.Name] = a
		}
	}
	return out, nil
}

// absenceOf returns the absence of a cluster; zero where it is there.
func absenceOf(one v1alpha1.Cluster, now time.Time) clusterAbsence {
	a := clusterAbsence{away: !meta.IsStatusConditionTrue(one.Status.Conditions, v1alpha1.ClusterReady)}
	if !a.away {
		a.checkIn = nextCheckInText(one, now)
	}
	return a
}

func (o *getOptions) printRows(out io.Writer, rows []client.Row, namespace string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, withNamespaceText("no rows", namespace))
		return err
	}
	headings := []string{"NAMESPACE", "BUNDLE", "CLUSTER", "PHASE", "STATE", "ITEMS", "SINCE", "REASON"}
	wide := o.format.IsFormat("wide")
	if wide {
		headings = append(headings, "GENERATION", "REPORTED", "REVISION", "ASSIGNED", "FEEDBACK", "SLICE")
	}
	table := output.NewTable(out, headings...)
	for _, r := range rows {
		cells := []string{r.Namespace, cmp.Or(r.Bundle, "(namespace)"), r.Cluster, string(r.Spec.Phase), "", "", output.FormatAge(o.now, time.Unix(r.Spec.Since, 0)), explainUnfinishedRow(r, o.absent[r.Cluster])}
		reported := ""
		if r.Status != nil {
			cells[4], cells[5] = string(r.Status.State), fmt.Sprintf("%d/%d", r.Status.Ready, r.Status.Total)
			if r.Status.Generation >= r.Spec.Generation && r.Spec.Phase == atoll.RowActive {
				cells[6] = output.FormatAge(o.now, r.Status.SinceTime())
			}
			reported = fmt.Sprint(r.Status.Generation)
		}
		if wide {
			cells = append(cells, fmt.Sprint(r.Spec.Generation), reported, r.Spec.Revision, formatAssigned(r.Spec.Assigned), formatFeedback(r.Status), r.Slice)
		}
		table.AddRow(cells...)
	}
	return table.Flush()
}

// explainUnfinishedRow returns why the row is not done, the hub's word before the cluster's.
func explainUnfinishedRow(r client.Row, a clusterAbsence) string {
	var words []string
	if r.Spec.Reason != "" {
		words = append(words, r.Spec.Reason)
	}
	if a.away {
		words = append(words, "the cluster is away")
	}
	switch {
	case r.Spec.Phase == atoll.RowVacant:
		words = append(words, "empty; it goes when it is deleted on the hub")
	case r.Spec.Phase == atoll.RowPending:
	case r.Status == nil:
		words = append(words, "no report yet"+a.nextCheckInNote())
	case r.Status.Generation < r.Spec.Generation:
		words = append(words, "no report of the latest change yet"+a.nextCheckInNote())
	case r.Status.Reason != "":
		words = append(words, strings.TrimSuffix(string(r.Status.Reason)+": "+r.Status.Message, ": "))
	}
	if r.Status != nil {
		words = append(words, firstUnfinishedItemReason(r.Status)...)
		if r.Status.Drifted > 0 {
			words = append(words, phrase.CountNoun(r.Status.Drifted, "observed object")+" with drift, which atoll drift lists")
		}
	}
	return strings.Join(words, "; ")
}

// firstUnfinishedItemReason returns the reason of the first item that is not done, where the row does not have it.
func firstUnfinishedItemReason(s *atoll.RowStatus) []string {
	for _, item := range s.Items {
		if item.Message != "" && strings.HasSuffix(s.Message, item.Message) {
			return nil // printed already
		}
		if item.Error || (item.Health != atoll.Healthy && item.Reason != "") {
			return []string{strings.TrimSuffix(fmt.Sprintf("%s/%s: %s: %s", item.Key.Kind, item.Key.Name, item.Reason, item.Message), ": ")}
		}
	}
	return nil
}

// formatFeedback returns the values that the cluster reports, such as "Deployment/web version=1.2".
func formatFeedback(s *atoll.RowStatus) string {
	if s == nil {
		return ""
	}
	var words []string
	for i := range s.Items {
		it := &s.Items[i]
		for _, v := range it.Feedback {
			value := phrase.EscapeLine(v.Value)
			if v.Problem != "" {
				value = "(" + phrase.EscapeLine(v.Problem) + ")"
			}
			words = append(words, fmt.Sprintf("%s/%s %s=%s", it.Key.Kind, it.Key.Name, v.Name, value))
		}
	}
	return strings.Join(words, ", ")
}

func formatAssigned(shares map[string]int64) string {
	var words []string
	for item, n := range shares {
		name := item
		if key, err := atoll.ParseItemKey(item); err == nil {
			name = key.Kind + "/" + key.Name
		}
		words = append(words, fmt.Sprintf("%s=%d", name, n))
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}
