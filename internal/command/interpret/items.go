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
	"atoll.dev/atoll/internal/interpret"
)

// item is what one cluster says.
type item struct {
	cluster string
	status  map[string]any
	health  atoll.Health
	// replicas that the cluster was told to run; nil where that is not said.
	replicas    *int64
	away, stale bool
}

// readItems of a file: a list, as YAML or JSON.
func readItems(name string, stdin io.Reader) ([]item, error) {
	text, err := content(name, stdin)
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
	out := make([]item, 0, len(raw))
	for i, m := range raw {
		it, err := itemOf(m)
		if err != nil {
			return nil, fmt.Errorf("%s, item %d: %w", name, i+1, err)
		}
		out = append(out, it)
	}
	return out, nil
}

func content(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// healths that an item may state.
var healths = []atoll.Health{atoll.Healthy, atoll.Progressing, atoll.Degraded, atoll.Suspended, atoll.Unknown}

func itemOf(m map[string]any) (item, error) {
	it := item{}
	for key, v := range m {
		ok := true
		switch key {
		case "cluster", "clusterName":
			it.cluster, ok = v.(string)
		case "status":
			it.status, ok = v.(map[string]any)
			ok = ok || v == nil
		case "health":
			said, _ := v.(string)
			for _, h := range healths {
				if strings.EqualFold(said, string(h)) {
					it.health = h
				}
			}
			if strings.EqualFold(said, "Unhealthy") {
				it.health = atoll.Degraded
			}
			ok = it.health != ""
		case "replicas":
			var n int64
			n, ok = v.(int64)
			it.replicas = &n
		case "away":
			it.away, ok = v.(bool)
		case "stale":
			it.stale, ok = v.(bool)
		default:
			return it, fmt.Errorf("%s: there are cluster, status, health, replicas, away and stale", key)
		}
		if !ok {
			return it, fmt.Errorf("%s is not what it has to be", key)
		}
	}
	if it.cluster == "" {
		return it, errors.New("it names no cluster")
	}
	return it, nil
}

// row that the item's agent would report of the template. A member counts generations on
// its own: where the item does not tell that its controller is behind, it is not.
func (q *question) row(template *unstructured.Unstructured, it item) (interpret.RowItem, error) {
	r := interpret.RowItem{Cluster: it.cluster, Health: it.health, Away: it.away, Stale: it.stale, Assigned: it.replicas}
	if it.status == nil {
		return r, nil
	}
	member := template.DeepCopy()
	member.Object["status"] = it.status
	generation, ok := it.status["generation"].(int64)
	if !ok {
		generation, _ = it.status["observedGeneration"].(int64)
	}
	if generation == 0 { // told in conditions alone
		generation = interpret.LatestObserved(it.status)
	}
	if generation > 0 {
		member.SetGeneration(generation)
	}
	told := it.replicas
	if n, ok := it.status["replicas"].(int64); ok && told == nil && q.divided {
		told = &n
	}
	if _, _, has := interpret.Replicas(member); told != nil && (has || q.known.Revises(q.kind())) {
		var err error
		if member, err = q.known.Revise(member, *told); err != nil {
			return r, err
		}
	}
	j := q.known.Judge(member)
	if r.Health == "" || r.Health == j.Health {
		r.Health, r.Reason, r.Message = j.Health, j.Reason, j.Message
	}
	r.Reflected = j.Reflected
	return r, nil
}
