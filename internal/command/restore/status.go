package restore

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
)

// HoldStatus is the status of a restored hub, as -o json prints it.
type HoldStatus struct {
	// Holding: the hub orders nothing.
	Holding bool `json:"holding"`
	// Rewound is nil on a hub that was never restored.
	Rewound *enginev1.Rewound `json:"rewound,omitempty"`
	// Clusters that are accepted, and those of them that are connected.
	Clusters  int `json:"clusters"`
	Connected int `json:"connected"`
	// Rows of the hub that are to be held by a cluster.
	Rows int `json:"rows"`
	// Waiting lists removals that members recorded and that await a decision.
	Waiting []WaitingPlan `json:"waiting,omitempty"`
}

// WaitingPlan is one plan of removals.
type WaitingPlan struct {
	// Bundle as `atoll confirm` takes it, with its namespace.
	Bundle    string   `json:"bundle"`
	Namespace string   `json:"namespace,omitempty"`
	Plan      string   `json:"plan"`
	Lines     []string `json:"lines"`
}

func newRestoreStatusCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the hub holds after a restore, why, and what each answer would mean",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			s, err := readRestoreStatus(cmd, c)
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), s); done {
				return err
			}
			return s.printStatus(cmd.OutOrStdout(), time.Now())
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func readRestoreStatus(cmd *cobra.Command, c *client.Connection) (*HoldStatus, error) {
	ctx := cmd.Context()
	state, err := readHubState(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &HoldStatus{Rewound: state.Rewound, Holding: state.Rewound != nil && state.Rewound.Accepted == ""}
	if s.Rewound == nil {
		return s, nil
	}
	clusters, err := client.List[v1alpha1.Cluster](ctx, c, client.Clusters, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	s.countClusters(clusters)
	byBundle := map[[2]string][]client.Row{}
	_, err = client.ListRows(ctx, c, "", func(r client.Row) bool {
		if r.Spec.Phase != atoll.RowRemoving {
			s.Rows++
		}
		if atoll.ParseRowReason(r.Spec.Reason).Plan != "" {
			byBundle[[2]string{r.Namespace, r.Bundle}] = append(byBundle[[2]string{r.Namespace, r.Bundle}], r)
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	for id, rows := range byBundle {
		if err := s.addPlans(ctx, c, id, rows); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.Waiting, func(a, b WaitingPlan) int {
		return strings.Compare(a.Namespace+"/"+a.Bundle+"/"+a.Plan, b.Namespace+"/"+b.Bundle+"/"+b.Plan)
	})
	return s, nil
}

// countClusters counts the accepted clusters, and the connected ones among them.
func (s *HoldStatus) countClusters(clusters []v1alpha1.Cluster) {
	for i := range clusters {
		if clusters[i].Spec.Accepted {
			s.Clusters++
			if ready := meta.FindStatusCondition(clusters[i].Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != metav1.ConditionUnknown {
				s.Connected++
			}
		}
	}
}

// addPlans adds the plans of a Bundle, by namespace and name, for which its rows wait after a restore.
func (s *HoldStatus) addPlans(ctx context.Context, c *client.Connection, id [2]string, rows []client.Row) error {
	kind, resource := "bundle", client.Bundles
	if id[0] == "" {
		kind, resource = "clusterbundle", client.ClusterBundles
	}
	b, err := client.Get[v1alpha1.Bundle](ctx, c, resource, id[0], id[1])
	if err != nil {
		return err
	}
	plans := client.PendingPlans(b.Annotations, rows)
	for _, hash := range slices.Sorted(maps.Keys(plans)) {
		if plans[hash].Recalled {
			s.Waiting = append(s.Waiting, WaitingPlan{kind + "/" + id[1], id[0], hash, plans[hash].Lines})
		}
	}
	return nil
}

func (s *HoldStatus) printStatus(out io.Writer, now time.Time) error {
	w := &lineWriter{out: out}
	switch {
	case s.Rewound == nil:
		w.printLine("This hub was not restored from an older state; it holds nothing back.")
	case s.Holding:
		s.printHoldState(w, now)
	default:
		w.printLine("The hub goes on: --%s was accepted after it was found on %s that %s.", s.Rewound.Accepted, s.Rewound.Since.UTC().Format(timeLayout), s.Rewound.Reason)
		s.printHeldRemovals(w)
	}
	return w.err
}

func (s *HoldStatus) printHoldState(w *lineWriter, now time.Time) {
	w.printLine("The hub holds since %s (%s): %s.", s.Rewound.Since.UTC().Format(timeLayout), output.FormatAge(now, s.Rewound.Since.Time), s.Rewound.Reason)
	w.printLine("It serves and observes, and orders nothing of any member; members go on with what they have.")
	w.printLine("%d of %d clusters are connected; one that is away reports its recorded removals when it comes back.", s.Connected, s.Clusters)
	told := s.Rewound.Told
	if told == nil {
		told = &enginev1.RememberedRemovals{}
	}
	w.printLine("")
	w.printLine("%s reported their recorded removals. Removed in them, and here all the same:", phrase.CountNoun(told.Clusters, "cluster"))
	w.printLine("  %s that a user deleted", phrase.CountNoun(told.Templates, "template"))
	w.printLine("  %s of a Bundle that left its cluster", phrase.CountNoun(told.Rows, "row"))
	for _, e := range told.Examples {
		w.printLine("    %s", e)
	}
	if more := int(told.Templates+told.Rows) - len(told.Examples); more > 0 && len(told.Examples) > 0 {
		w.printLine("    and %d more", more)
	}
	w.printLine("")
	w.printLine("atoll restore accept --hub      The %s of this hub count: these removals are undone, and what members", phrase.CountNoun(int32(s.Rows), "row"))
	w.printLine("                                have that this hub does not have stays there, listed as unclaimed.")
	w.printLine("atoll restore accept --members  These removals are held: nothing of them is sent, and nothing is deleted, until each is")
	w.printLine("                                confirmed or kept. What members have and this hub does not have stays there.")
}

func (s *HoldStatus) printHeldRemovals(w *lineWriter) {
	if len(s.Waiting) == 0 {
		w.printLine("No removal from before the restore waits for a decision.")
		return
	}
	w.printLine("")
	w.printLine("Members recorded removals that this hub did not. They are held until you decide:")
	for _, p := range s.Waiting {
		in := ""
		if p.Namespace != "" {
			in = " -n " + p.Namespace
		}
		w.printLine("")
		w.printLine("%s%s, plan %s", p.Bundle, in, p.Plan)
		for _, l := range p.Lines {
			w.printLine("  %s", l)
		}
		w.printLine("  remove:     atoll confirm %s%s --plan %s", p.Bundle, in, p.Plan)
		w.printLine("  take back:  atoll restore keep %s%s --plan %s", p.Bundle, in, p.Plan)
	}
}

// lineWriter keeps the first error.
type lineWriter struct {
	out io.Writer
	err error
}

func (w *lineWriter) printLine(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}
