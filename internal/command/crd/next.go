package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
)

// maxClustersShown are named without a count.
const maxClustersShown = 5

// reach is where the changed definitions go as soon as they are written.
type reach struct {
	clusters []string
	// sources that place them, such as "HubSettings hub".
	sources []string
	err     error
}

// requestReach requests from the hub where the definitions would go, by the functions that place them.
func requestReach(ctx context.Context, c *client.Connection, changed []*pulled) reach {
	objects := make([]any, len(changed))
	for i, p := range changed {
		objects[i] = p.after.Object
	}
	body, err := json.Marshal(map[string]any{"objects": objects})
	if err != nil {
		return reach{err: err}
	}
	var plan preview.Plan
	request := c.REST.Post().AbsPath(atoll.PlanPath).SetHeader("Content-Type", "application/json").Body(body)
	if err := c.DecodeAnswer(request.Do(ctx), "what is no plan", &plan); err != nil {
		return reach{err: err}
	}
	return reachOf(&plan)
}

// reachOf returns the clusters in which the plan adds or changes something.
func reachOf(plan *preview.Plan) reach {
	clusters, sources := map[string]bool{}, map[string]bool{}
	for i := range plan.Bundles {
		for _, row := range plan.Bundles[i].Rows {
			if row.Change == preview.ChangeRemoved {
				continue
			}
			sources[plan.Bundles[i].Source] = true
			for _, name := range row.Clusters {
				clusters[name] = true
			}
		}
	}
	return reach{clusters: slices.Sorted(maps.Keys(clusters)), sources: slices.Sorted(maps.Keys(sources))}
}

// formatNext returns what happens next with the definitions that were, or would be, written.
func formatNext(cluster string, changed []*pulled, to reach) string {
	name, subject := changed[0].definition.fullName(), "It goes"
	if len(changed) > 1 {
		name, subject = "NAME", "They go"
	}
	var b strings.Builder
	b.WriteString("\nNext:\n")
	switch {
	case to.err != nil:
		fmt.Fprintf(&b, "- The hub does not answer whether something places it at once (%s): atoll explain crd/%s shows it.\n", phrase.EscapeLine(to.err.Error()), name)
	case len(to.clusters) == 0:
		b.WriteString("- Nothing places a definition by itself here: it stays on the hub until an object of its kind is placed.\n")
	default:
		fmt.Fprintf(&b, "- %s at once to %s (%s).\n", subject, formatClusters(to.clusters), phrase.EscapeLine(strings.Join(to.sources, ", ")))
	}
	fmt.Fprintf(&b, `- An object that an annotation or the default placement places takes the definition of its kind along to its
  clusters. One that a policy places does so with propagateDeps: true.
- A cluster that has the same definition adopts it, and keeps it when the objects leave. A cluster with a
  different one keeps its own, and reports a Conflict (atoll.dev/conflict-resolution: AdoptIfSame).
- Clusters that have it from the hub follow the hub. Atoll takes back an upgrade in %s: make it on the hub.
- To keep definition and objects on the hub: kubectl label crd %s atoll.dev/hub-only=true
`, cluster, name)
	return b.String()
}

func formatClusters(names []string) string {
	shown := names[:min(len(names), maxClustersShown)]
	text := phrase.EscapeLine(strings.Join(shown, ", "))
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %s more", phrase.CountNoun(more, "cluster"))
	}
	return text
}
