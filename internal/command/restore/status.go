package restore

import (
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
)

// Status of a restored hub, as -o json prints it.
type Status struct {
	// Holding: the hub orders nothing.
	Holding bool `json:"holding"`
	// Rewound is nil on a hub that was never restored.
	Rewound *enginev1.Rewound `json:"rewound,omitempty"`
	// Clusters that are accepted, and those of them that are connected.
	Clusters  int `json:"clusters"`
	Connected int `json:"connected"`
	// Rows of the hub that are to be held by a cluster.
	Rows int `json:"rows"`
	// Waiting lists removals that members remember and nobody has decided on.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Waiting is one plan of removals.
type Waiting struct {
	// Bundle as `atoll confirm` takes it, with its namespace.
	Bundle    string   `json:"bundle"`
	Namespace string   `json:"namespace,omitempty"`
	Plan      string   `json:"plan"`
	Lines     []string `json:"lines"`
}

func statusCommand(flags *client.Flags) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the hub holds after a restore, why, and what each answer would mean",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			s, err := look(cmd, c)
			if err != nil {
				return err
			}
			if done, err := format.Structured(cmd.OutOrStdout(), s); done {
				return err
			}
			return s.print(cmd.OutOrStdout(), time.Now())
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func look(cmd *cobra.Command, c *client.Cluster) (*Status, error) {
	ctx := cmd.Context()
	state, err := read(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Status{Rewound: state.Rewound, Holding: state.Rewound != nil && state.Rewound.Accepted == ""}
	if s.Rewound == nil {
		return s, nil
	}
	clusters, err := client.List[v1alpha1.Cluster](ctx, c, client.Clusters, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range clusters {
		if clusters[i].Spec.Accepted {
			s.Clusters++
			if ready := meta.FindStatusCondition(clusters[i].Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != metav1.ConditionUnknown {
				s.Connected++
			}
		}
	}
	byBundle := map[[2]string][]client.Row{}
	_, err = client.Rows(ctx, c, "", func(r client.Row) bool {
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
		kind, resource := "bundle", client.Bundles
		if id[0] == "" {
			kind, resource = "clusterbundle", client.ClusterBundles
		}
		b, err := client.Get[v1alpha1.Bundle](ctx, c, resource, id[0], id[1])
		if err != nil {
			return nil, err
		}
		plans := client.Plans(b.Annotations, rows)
		for _, hash := range slices.Sorted(maps.Keys(plans)) {
			if plans[hash].Recalled {
				s.Waiting = append(s.Waiting, Waiting{kind + "/" + id[1], id[0], hash, plans[hash].Lines})
			}
		}
	}
	slices.SortFunc(s.Waiting, func(a, b Waiting) int {
		return strings.Compare(a.Namespace+"/"+a.Bundle+"/"+a.Plan, b.Namespace+"/"+b.Bundle+"/"+b.Plan)
	})
	return s, nil
}

func (s *Status) print(out io.Writer, now time.Time) error {
	w := &writer{out: out}
	switch {
	case s.Rewound == nil:
		w.line("This hub was not restored from an older state; it holds nothing back.")
	case s.Holding:
		s.holding(w, now)
	default:
		w.line("The hub goes on: --%s was accepted after it was found on %s that %s.", s.Rewound.Accepted, s.Rewound.Since.UTC().Format(stamp), s.Rewound.Reason)
		s.waiting(w)
	}
	return w.err
}

func (s *Status) holding(w *writer, now time.Time) {
	w.line("The hub holds since %s (%s): %s.", s.Rewound.Since.UTC().Format(stamp), output.Age(now, s.Rewound.Since.Time), s.Rewound.Reason)
	w.line("It serves and observes, and orders nothing of any member; members go on with what they have.")
	w.line("%d of %d clusters are connected; one that is away tells what it remembers when it comes back.", s.Connected, s.Clusters)
	told := s.Rewound.Told
	if told == nil {
		told = &enginev1.Told{}
	}
	w.line("")
	w.line("%s told what they remember. Removed in them, and here all the same:", atoll.Count(told.Clusters, "cluster"))
	w.line("  %s that a user deleted", atoll.Count(told.Templates, "template"))
	w.line("  %s of a Bundle that left its cluster", atoll.Count(told.Rows, "row"))
	for _, e := range told.Examples {
		w.line("    %s", e)
	}
	if more := int(told.Templates+told.Rows) - len(told.Examples); more > 0 && len(told.Examples) > 0 {
		w.line("    and %d more", more)
	}
	w.line("")
	w.line("atoll restore accept --hub      The %s of this hub count: these removals are undone, and what members", atoll.Count(int32(s.Rows), "row"))
	w.line("                                have that this hub does not know stays there, listed as unclaimed.")
	w.line("atoll restore accept --members  These removals are held: nothing of them is sent, and nothing is deleted, until each is")
	w.line("                                confirmed or kept. What members have that this hub does not know stays there.")
}

func (s *Status) waiting(w *writer) {
	if len(s.Waiting) == 0 {
		w.line("No removal from before the restore waits for a decision.")
		return
	}
	w.line("")
	w.line("Members remember removals that this hub does not. They are held until you decide:")
	for _, p := range s.Waiting {
		in := ""
		if p.Namespace != "" {
			in = " -n " + p.Namespace
		}
		w.line("")
		w.line("%s%s, plan %s", p.Bundle, in, p.Plan)
		for _, l := range p.Lines {
			w.line("  %s", l)
		}
		w.line("  remove:     atoll confirm %s%s --plan %s", p.Bundle, in, p.Plan)
		w.line("  take back:  atoll restore keep %s%s --plan %s", p.Bundle, in, p.Plan)
	}
}

// writer keeps the first error.
type writer struct {
	out io.Writer
	err error
}

func (w *writer) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}
