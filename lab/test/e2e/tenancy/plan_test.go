package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
)

// previewAs requests from the hub as that user, without earlier dry runs, a preview of the
// objects.
func previewAs(t *testing.T, user string, deleted bool, list ...*unstructured.Unstructured) (preview.Plan, string) {
	t.Helper()
	config := rest.CopyConfig(testHub.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	field := "objects"
	if deleted {
		field = "deleted"
	}
	body, err := json.Marshal(map[string]any{field: list})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kube.CoreV1().RESTClient().Post().AbsPath(atoll.PlanPath).SetHeader("Content-Type", "application/json").Body(body).DoRaw(t.Context())
	if err != nil {
		return preview.Plan{Refused: []preview.Refusal{{Why: err.Error()}}}, string(raw)
	}
	var p preview.Plan
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return p, string(raw)
}

// neighboursIn returns the neighbours that an answer names, except in refusals, which
// repeat the request.
func neighboursIn(p preview.Plan) (found []string) {
	p.Refused = nil
	raw, _ := json.Marshal(p)
	for _, word := range []string{"rival", "xyzzy", "eHl6enk"} {
		if strings.Contains(string(raw), word) {
			found = append(found, word+" in "+string(raw))
		}
	}
	return found
}

// An object that the hub would refuse has no part in a preview either, even without a dry
// run.
func plansOfWhatIsRefused(t *testing.T) {
	for _, list := range [][]attemptField{outOfNamespace, outOfPatches, outOfSets, beyondRights} {
		for _, a := range list {
			o := decodeObjects(t, a.object)[0]
			if a.refused == "" || a.verb == "patch" && o.GetKind() == "PropagationPolicy" {
				continue // what is patched is not the whole of it
			}
			p, raw := previewAs(t, a.user, a.verb == "delete", o)
			if len(p.Refused) == 0 || p.Changes || len(p.Bundles)+len(p.Placements)+p.Hidden > 0 {
				t.Errorf("%s: it is planned: %s", a.name, raw)
			}
			if found := neighboursIn(p); len(found) > 0 {
				t.Errorf("%s: %q", a.name, found)
			}
		}
	}
	for _, a := range enginesOwn {
		if p, raw := previewAs(t, a.user, false, decodeObjects(t, a.object)[0]); p.Changes || len(p.Bundles)+p.Hidden > 0 || len(neighboursIn(p)) > 0 {
			t.Errorf("%s: it is planned: %s", a.name, raw)
		}
	}
}

// Objects that are previewed together do not lend each other rights.
func plansLendNoRights(t *testing.T) {
	everywhere := acmePlacement("")
	for name, with := range map[string]string{
		"a binding":               bindTo("acme", "rival-set"),
		"a binding of a name":     strings.Replace(bindTo("acme", "rival-set"), "name: rival-set", "name: acme-set", 1),
		"no binding":              bindTo("acme", "acme-set"),
		"a neighbour's cluster":   clusterOf("rival-1", ", labels: {atoll.dev/set: acme-set, owner: acme}}, spec: {accepted: true}"),
		"a cluster by their UID":  "{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: acme-1, uid: theirs, labels: {atoll.dev/set: acme-set}}, spec: {accepted: true}}",
		"a set of all":            set("acme-set", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {}}}"),
		"an open set":             set("rival-set", "{unboundNamespaces: Allow}"),
		"properties":              "{apiVersion: atoll.dev/v1alpha1, kind: HubSettings, metadata: {name: hub}, spec: {placementProperties: [owner]}}",
		"a cluster placement":     "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPlacement, metadata: {name: try}}",
		"an enforced rollout":     "{apiVersion: atoll.dev/v1alpha1, kind: ClusterRolloutStrategy, metadata: {name: try}, spec: {type: All, enforcedFor: {namespaceSelector: {}}}}",
		"a cluster policy":        "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: try}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret}]}}",
		"a neighbour's template":  "{apiVersion: v1, kind: Secret, metadata: {name: plans, namespace: rival}, data: {other: YQ==}}",
		"a neighbour's namespace": "{apiVersion: v1, kind: Namespace, metadata: {name: rival, annotations: {atoll.dev/clusters: '*'}}}",
		"a neighbour's override":  "{apiVersion: atoll.dev/v1alpha1, kind: OverridePolicy, metadata: {name: try, namespace: rival}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret}], overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			deleted := name == "no binding"
			if p, raw := previewAs(t, "mallory", deleted, decodeObjects(t, with)[0]); len(p.Refused) == 0 || p.Changes || len(neighboursIn(p)) > 0 {
				t.Errorf("alone: %s", raw)
			}
			if deleted {
				return
			}
			p, raw := previewAs(t, "mallory", false, decodeObjects(t, everywhere)[0], decodeObjects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: planned, namespace: acme}}")[0], decodeObjects(t, with)[0])
			if len(p.Refused) != 1 || len(neighboursIn(p)) > 0 || !strings.Contains(raw, "acme-1") {
				t.Errorf("beside what may be: %s", raw)
			}
		})
	}
}

// Plans and warnings name clusters of the own sets alone, hide what may not be read, and
// show no Secret.
func plansNameNoNeighbours(t *testing.T) {
	own := decodeObjects(t, acmePlacement("clusterAffinity: {labelSelector: {matchExpressions: [{key: owner, operator: Exists}]}}"))[0]
	apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: foretold, namespace: acme}}")
	apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: acme}, stringData: {word: plugh}}")
	var said warningLog
	config := rest.CopyConfig(testHub.config)
	config.Impersonate, config.WarningHandler = rest.ImpersonationConfig{UserName: "mallory"}, &said
	c, err := client.New(config, client.Options{Scheme: state.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "a dry run foretells", func(ctx context.Context) error {
		said.clearWarnings()
		if err := c.Create(ctx, own.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		if !strings.Contains(said.allWarnings(), "acme-1") {
			return errors.New("it says " + said.allWarnings())
		}
		return nil
	})
	if strings.Contains(said.allWarnings(), "rival") {
		t.Errorf("a warning names a neighbour:\n%s", said.allWarnings())
	}
	asMallory, file := filepath.Join(t.TempDir(), "mallory"), filepath.Join(t.TempDir(), "plan.yaml")
	writeImpersonation(t, asMallory, "mallory")
	text := acmePlacement("") + "\n---\n" + propagateSecrets + "\n---\n{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: acme}, stringData: {word: frotz}}\n---\n{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: try, namespace: acme}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "yaml", ""} {
		args := []string{"plan", "-f", file, "--all"}
		if format != "" {
			args = append(args, "-o", format)
		}
		out, err := atollAs(t.Context(), asMallory, args...)
		if err == nil || !strings.Contains(out, "acme-1") {
			t.Errorf("-o %q: %v\n%s", format, err, out)
		}
		for _, word := range []string{"rival", "frotz", "ZnJvdHo", "plugh", "cGx1Z2g"} {
			if strings.Contains(out, word) {
				t.Errorf("-o %q tells %s:\n%s", format, word, out)
			}
		}
	}
	// A user that may write policies and read no Bundles sees that there are some.
	p, raw := previewAs(t, "noah", false, decodeObjects(t, acmePlacement(""))[0])
	if len(p.Bundles) > 0 || p.Hidden == 0 || len(neighboursIn(p)) > 0 || strings.Contains(raw, "acme-1") {
		t.Errorf("noah reads %s", raw)
	}
}

const propagateSecrets = "{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: secrets, namespace: acme}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret, name: own}]}}"

// A Placement publishes what its namespace may place on, and nothing else.
func placementsStayInTheSets(t *testing.T) {
	apply(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: anywhere, namespace: acme}}")
	testwait.UntilNil(t, "the Placement publishes the set's cluster alone", func(ctx context.Context) error {
		var list v1alpha1.PlacementDecisionList
		if err := clientAs(t, "mallory").List(ctx, &list, client.InNamespace("acme")); err != nil {
			return err
		}
		var names []string
		for _, d := range list.Items {
			for _, c := range d.Status.Decisions {
				names = append(names, c.ClusterName)
			}
		}
		if !slices.Equal(names, []string{"acme-1"}) {
			return fmt.Errorf("it publishes %q", names)
		}
		return nil
	})
}

// warningLog collects warnings.
type warningLog struct {
	mu    sync.Mutex
	lines []string
}

func (h *warningLog) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, text)
}

func (h *warningLog) allWarnings() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

func (h *warningLog) clearWarnings() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = nil
}
