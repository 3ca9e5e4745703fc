package interpret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// clusterItem is the report of one cluster.
type clusterItem struct {
	cluster string
	status  map[string]any
	health  atoll.Health
	// replicas assigned to the cluster; nil where the item does not state them.
	replicas            *int64
	disconnected, stale bool
}

// readItems reads a list in YAML or JSON from a file.
func readItems(name string, stdin io.Reader) ([]clusterItem, error) {
	text, err := readContent(name, stdin)
	if err != nil {
		return nil, err
	}
	js, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var raw []map[string]any
	if !bytes.HasPrefix(bytes.TrimSpace(js), []byte("[")) {
		return nil, fmt.Errorf("%s: it has to be a list of {cluster: NAME, status: {…}}", name)
	}
	if err := utiljson.Unmarshal(js, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := make([]clusterItem, 0, len(raw))
	for i, m := range raw {
		it, err := parseItem(m)
		if err != nil {
			return nil, fmt.Errorf("%s, item %d: %w", name, i+1, err)
		}
		out = append(out, it)
	}
	return out, nil
}

// readContent reads a file of at most maxSources bytes; - is the standard input, unless stdin is nil.
func readContent(name string, stdin io.Reader) ([]byte, error) {
	if name != "-" || stdin == nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	text, err := readBounded(stdin, maxSources)
	if err != nil && !errors.As(err, new(*os.PathError)) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return text, err
}

// knownHealths are the values of health in an item, besides those of Karmada and Argo CD.
var knownHealths = []atoll.Health{atoll.Healthy, atoll.Progressing, atoll.Degraded, atoll.Suspended, atoll.Unknown}

func parseItem(m map[string]any) (clusterItem, error) {
	it := clusterItem{}
	for key, v := range m {
		ok := true
		switch key {
		case "cluster", "clusterName":
			it.cluster, ok = v.(string)
		case "status":
			it.status, ok = v.(map[string]any)
			ok = ok || v == nil
		case "health":
			it.health = parseHealth(v)
			ok = it.health != ""
		case "replicas":
			var n int64
			n, ok = v.(int64)
			it.replicas = &n
		case "away":
			it.disconnected, ok = v.(bool)
		case "stale":
			it.stale, ok = v.(bool)
		default:
			return it, fmt.Errorf("%s: there are cluster, status, health, replicas, away and stale", key)
		}
		if !ok {
			return it, fmt.Errorf("%s has the wrong type or value", key)
		}
	}
	if it.cluster == "" {
		return it, errors.New("it names no cluster")
	}
	return it, nil
}

// parseHealth ignores case. It accepts Karmada's Unhealthy and Argo CD's Missing; empty for other values.
func parseHealth(v any) atoll.Health {
	text, _ := v.(string)
	for _, h := range knownHealths {
		if strings.EqualFold(text, string(h)) {
			return h
		}
	}
	switch {
	case strings.EqualFold(text, "Unhealthy"):
		return atoll.Degraded
	case strings.EqualFold(text, "Missing"):
		return atoll.Progressing
	}
	return ""
}

// buildRow returns the row that the item's agent would report of the template. A member counts
// generations on its own: its controller is up to date unless the item shows that it is behind.
func (q *objectQuery) buildRow(template *unstructured.Unstructured, it clusterItem) (kinds.RowItem, error) {
	r := kinds.RowItem{Cluster: it.cluster, Health: it.health, Disconnected: it.disconnected, Stale: it.stale, Assigned: it.replicas}
	if it.status == nil {
		return r, nil
	}
	member := template.DeepCopy()
	member.Object["status"] = it.status
	if generation := generationFromStatus(it.status); generation > 0 {
		member.SetGeneration(generation)
	}
	assigned := it.replicas
	if n, ok := it.status["replicas"].(int64); ok && assigned == nil && q.divided {
		assigned = &n
	}
	if _, _, has := kinds.ReplicasOf(member); assigned != nil && (has || q.interpreters.RevisesReplicas(q.groupVersionKind())) {
		var err error
		if member, err = q.interpreters.ReviseReplicas(member, *assigned); err != nil {
			return r, err
		}
	}
	j := q.interpreters.ReportState(member)
	if r.Health == "" || r.Health == j.Health {
		r.Health, r.Reason, r.Message = j.Health, j.Reason, j.Message
	}
	r.Reflected = j.Reflected
	return r, nil
}

// generationFromStatus returns the generation of a status: its generation, or else the one that it has observed.
func generationFromStatus(status map[string]any) int64 {
	generation, ok := status["generation"].(int64)
	if !ok {
		generation, _ = status["observedGeneration"].(int64)
	}
	if generation == 0 { // some kinds state it in conditions alone
		generation = kinds.LatestConditionGeneration(status)
	}
	return generation
}
