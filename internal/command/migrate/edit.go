package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// edit of the object that places a Bundle.
type edit struct {
	kind            string
	namespace, name string
	resource        schema.GroupVersionResource
	// patch is the edit as a merge patch. patchAtVersion applies only to the version that the edit was made from.
	patch, patchAtVersion []byte
	// written is the object as the hub returned it last.
	written *unstructured.Unstructured
}

func (e *edit) describe() string {
	return strings.TrimSpace(e.kind + " " + strings.TrimPrefix(e.namespace+"/"+e.name, "/"))
}

// stated has the fields of an object that places Bundles.
type stated[T any] struct {
	Metadata struct {
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec T `json:"spec"`
}

// policyPlacement is the part of a policy that states its clusters.
type policyPlacement struct {
	Placement    v1alpha1.PlacementSpec `json:"placement"`
	PlacementRef *v1alpha1.PlacementRef `json:"placementRef"`
}

// resourceByKind has the resources of what places Bundles.
var resourceByKind = map[string]schema.GroupVersionResource{
	"PropagationPolicy":        v1alpha1.GroupVersion.WithResource("propagationpolicies"),
	"ClusterPropagationPolicy": v1alpha1.GroupVersion.WithResource("clusterpropagationpolicies"),
	"Placement":                v1alpha1.GroupVersion.WithResource("placements"),
	"ClusterPlacement":         v1alpha1.GroupVersion.WithResource("clusterplacements"),
}

// findEdit returns the edit that moves a Bundle.
func findEdit(ctx context.Context, c *client.Connection, bundle *v1alpha1.Bundle, from, to string) (*edit, error) {
	source := bundle.Spec.Source
	switch source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		return findPolicyEdit(ctx, c, &edit{kind: source.Kind, namespace: bundle.Namespace, name: source.Name}, from, to)
	case v1alpha1.SourceClusterPropagationPolicy:
		return findPolicyEdit(ctx, c, &edit{kind: source.Kind, name: source.Name}, from, to)
	}
	return nil, fmt.Errorf("%s is placed by %s, which is not edited for one Bundle: give it a policy that names its clusters", bundle.Name, atoll.DescribeSourceEditor(source))
}

// findPolicyEdit returns the edit of a policy, or of the Placement that it refers to.
func findPolicyEdit(ctx context.Context, c *client.Connection, e *edit, from, to string) (*edit, error) {
	policy, err := readStated[policyPlacement](ctx, c, e)
	if err != nil {
		return nil, err
	}
	ref := policy.Spec.PlacementRef
	if ref == nil {
		return e, e.setPatch(policy.Metadata.UID, policy.Metadata.ResourceVersion, policy.Spec.Placement, from, to, "placement")
	}
	placement := &edit{kind: "Placement", namespace: e.namespace, name: ref.Name}
	if e.namespace == "" {
		placement.kind = "ClusterPlacement"
	}
	of, err := readStated[v1alpha1.PlacementSpec](ctx, c, placement)
	if err != nil {
		return nil, err
	}
	return placement, placement.setPatch(of.Metadata.UID, of.Metadata.ResourceVersion, of.Spec, from, to)
}

// readStated reads the object of an edit.
func readStated[T any](ctx context.Context, c *client.Connection, e *edit) (*stated[T], error) {
	e.resource = resourceByKind[e.kind]
	return client.Get[stated[T]](ctx, c, e.resource, e.namespace, e.name)
}

// setPatch sets the patches of the edit. The placement is below spec, in the fields of path.
func (e *edit) setPatch(uid, version string, before v1alpha1.PlacementSpec, from, to string, path ...string) error {
	was, err := json.Marshal(before)
	if err != nil {
		return err
	}
	is, err := json.Marshal(moveInPlacement(before, from, to))
	if err != nil {
		return err
	}
	changes, err := jsonmergepatch.CreateThreeWayJSONMergePatch(was, is, was)
	if err != nil {
		return fmt.Errorf("compare the placements: %w", err)
	}
	var spec any = json.RawMessage(changes)
	for i := range path {
		spec = map[string]any{path[len(path)-1-i]: spec}
	}
	if e.patch, err = json.Marshal(map[string]any{"spec": spec}); err != nil {
		return err
	}
	e.patchAtVersion, err = json.Marshal(map[string]any{"spec": spec, "metadata": map[string]any{"uid": uid, "resourceVersion": version}})
	return err
}
