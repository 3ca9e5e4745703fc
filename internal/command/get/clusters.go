package get

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/checkin"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/trust/standing"
)

func newGetClustersCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &getOptions{flags: flags}
	var selector, by string
	cmd := &cobra.Command{
		Use:     "clusters [NAME...]",
		Aliases: []string{"cluster", "cl", "clu"},
		Short:   "Show the member clusters, and why those that are not Ready are not",
		Example: `  atoll get clusters
  atoll get clusters --group-by region
  atoll get clusters --group-by label:env -l tier=edge`,
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := o.connectHub()
			if err != nil {
				return err
			}
			if by != "" {
				if len(names) > 0 {
					return errors.New("--group-by counts all clusters, or those of --selector; leave the names out")
				}
				return o.printGroups(cmd, c, by, selector)
			}
			clusters, err := client.List[v1alpha1.Cluster](cmd.Context(), c, client.Clusters, "", metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return err
			}
			if clusters, err = selectByName(clusters, names, func(c v1alpha1.Cluster) string { return c.Name }); err != nil {
				return err
			}
			if done, err := o.format.PrintStructured(cmd.OutOrStdout(), newListObject(clusters)); done {
				return err
			}
			var agents standing.Certificates
			if o.format.IsFormat("wide") {
				if agents, err = agentCertificates(cmd.Context(), c); err != nil {
					return err
				}
			}
			return o.printClusters(cmd.OutOrStdout(), clusters, agents, failoverTerms(cmd.Context(), c))
		},
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector, such as env=prod")
	cmd.Flags().StringVar(&by, "group-by", "", "count clusters by region, zone, provider, set (ClusterSet), version, agent, status or label:KEY")
	o.format.AddTo(cmd.Flags(), "json", "yaml", "wide")
	return cmd
}

// selectByName keeps the named ones; no names select all. A name that is not
// there is an error.
func selectByName[T any](all []T, names []string, nameOf func(T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var kept []T
	for _, name := range names {
		i := slices.IndexFunc(all, func(v T) bool { return nameOf(v) == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q; leave the name out to see all", name)
		}
		kept = append(kept, all[i])
	}
	return kept, nil
}

// agentCertificates returns the certificates of agents, when they end, and how agents' connections come. A
// hub that is older than this command has none.
func agentCertificates(ctx context.Context, c *client.Connection) (standing.Certificates, error) {
	var out standing.Certificates
	reply, err := client.ReadAnswer(c.REST.Get().AbsPath(standing.CertificatesPath).Do(ctx))
	if client.IsNoHubError(err) {
		return out, nil
	}
	if err != nil {
		return out, c.ExplainError(err)
	}
	if err := json.Unmarshal(reply, &out); err != nil {
		return out, fmt.Errorf("read when agents' certificates end: %w", err)
	}
	return out, nil
}

// lifeLeft returns the remaining life of a certificate. It is unknown for an agent that no hub has
// seen since its start.
func lifeLeft(ends standing.Certificates, cluster string, now time.Time) string {
	until, known := ends.Ends[cluster]
	switch {
	case !known:
		return ""
	case until.After(now):
		return output.FormatAge(until, now) + " left"
	}
	return "ended " + output.FormatAge(now, until) + " ago"
}

func (o *getOptions) printClusters(out io.Writer, clusters []v1alpha1.Cluster, agents standing.Certificates, failover *v1alpha1.ClusterFailover) error {
	if len(clusters) == 0 {
		_, err := fmt.Fprintln(out, "no clusters yet; `atoll token create` on the hub begins the first join")
		return err
	}
	headings := []string{"NAME", "ACCEPTED", "READY", "REGION", "VERSION", "NODES", "AGE", "REASON"}
	wide := o.format.IsFormat("wide")
	if wide {
		headings = append(headings, "MODE", "ZONE", "PROVIDER", "TAINTS", "CAPACITY", "LABELS", "AGENT", "CARRIAGE", "CERTIFICATE", "UID")
	}
	table := output.NewTable(out, headings...)
	for _, c := range clusters {
		ready, reason := readinessText(c, o.now)
		reason += failoverText(&c, failover, o.now)
		cells := []string{
			c.Name, output.YesNo(c.Spec.Accepted), ready, c.Spec.Region, c.Status.KubernetesVersion,
			c.Status.Nodes.Summary, output.FormatAge(o.now, c.CreationTimestamp.Time), reason,
		}
		if wide {
			cells = append(cells, string(cmp.Or(c.Spec.Mode, v1alpha1.ModePull)), strings.Join(c.Spec.ListZones(), ","), c.Spec.Provider, formatTaints(c.Spec.Taints), formatCapacity(c.Spec.Capacity), labelList(c.Labels), c.Status.AgentVersion, agents.Carriage[c.Name], lifeLeft(agents, c.Name, o.now), string(c.UID))
		}
		table.AddRow(cells...)
	}
	return table.Flush()
}

// readinessText is the cluster's Ready in a word, and what stands in the way; of one that is removed,
// or drained, how far that is.
func readinessText(c v1alpha1.Cluster, now time.Time) (ready, reason string) {
	ready, reason = readinessWithoutRemoval(c, now)
	if going := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterRemoving); going != nil {
		return ready, "is removed (" + going.Reason + "): " + going.Message
	}
	if drain := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining); drain != nil {
		text := "is drained (" + drain.Reason + "): " + drain.Message
		reason = strings.TrimPrefix(reason+"; "+text, "; ")
	}
	return ready, reason
}

func readinessWithoutRemoval(c v1alpha1.Cluster, now time.Time) (ready, reason string) {
	if !c.Spec.Accepted {
		if cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterAccepted); cond != nil && cond.Message != "" {
			return "no", cond.Message
		}
		return "no", "waits for `atoll accept " + c.Name + "`"
	}
	for _, kind := range []string{v1alpha1.ClusterReady, v1alpha1.ClusterJoined} {
		cond := meta.FindStatusCondition(c.Status.Conditions, kind)
		switch {
		case cond == nil:
			continue
		case cond.Status == metav1.ConditionTrue && kind == v1alpha1.ClusterReady:
			return "yes", readyNote(c, now)
		case cond.Status != metav1.ConditionTrue:
			ready = "no"
			if cond.Status == metav1.ConditionUnknown {
				ready = "unknown"
			}
			return ready, strings.TrimSuffix(cond.Reason+": "+cond.Message, ": ")
		}
	}
	return "no", "its agent has sent nothing yet"
}

// readyNote returns the note about a cluster that is ready.
func readyNote(c v1alpha1.Cluster, now time.Time) string {
	if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring) {
		return v1alpha1.ClusterCertificateExpiring + ": " + meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring).Message
	}
	if kept := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed); kept != nil && c.Spec.Mode != v1alpha1.ModePush {
		return kept.Reason + ": " + kept.Message
	}
	return nextCheckInText(c, now)
}

// nextCheckInText returns when a cluster that checks in will, as far as clocks agree.
func nextCheckInText(c v1alpha1.Cluster, now time.Time) string {
	every := c.Spec.CheckInInterval()
	if every == 0 {
		return ""
	}
	return checkin.NewCheckInSchedule(every, string(c.UID)).DescribeNext(now)
}

func formatTaints(all []v1alpha1.Taint) string {
	var words []string
	for _, t := range all {
		word := t.Key
		if t.Value != "" {
			word += "=" + t.Value
		}
		words = append(words, word+":"+string(t.Effect))
	}
	return strings.Join(words, ",")
}

// formatCapacity returns the capacity that is stated.
func formatCapacity(c *v1alpha1.ClusterCapacity) string {
	if c == nil {
		return ""
	}
	var words []string
	if c.Replicas != nil {
		words = append(words, fmt.Sprintf("replicas=%d", *c.Replicas))
	}
	if c.Objects != nil {
		words = append(words, fmt.Sprintf("objects=%d", *c.Objects))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		q := c.Resources[name]
		words = append(words, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(words, ",")
}

func labelList(labels map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return strings.Join(words, ",")
}
