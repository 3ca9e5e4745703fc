package diff

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/preview"
)

// ClusterDiff is how an object in a cluster differs from what the cluster gets.
type ClusterDiff struct {
	Cluster string `json:"cluster"`
	// Absent: the cluster does not have the object, and would create it.
	Absent bool `json:"absent,omitempty"`
	// Fields that an apply would change.
	Fields []FieldDiff `json:"fields,omitempty"`
	// Error is why the object could not be compared.
	Error string `json:"error,omitempty"`
}

// FieldDiff is a field with two values.
type FieldDiff struct {
	// Path is a JSON Pointer. An element of a list is named by its index, or as name=NAME.
	Path string `json:"path"`
	// Live is the cluster's value, and Wanted the ordered one; nil where the field is not there.
	Live   any `json:"live,omitempty"`
	Wanted any `json:"wanted,omitempty"`
	// Managers of the cluster's value.
	Managers []string `json:"managers,omitempty"`
	// Hidden: the values are a Secret's and not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// memberObject is the object in one cluster.
type memberObject struct {
	name   string
	client dynamic.ResourceInterface
}

// compareObject compares the member's object with the content that the hub renders for it. It writes
// nothing: the member's API computes the apply as a dry run.
func (m memberObject) compareObject(ctx context.Context, key atoll.ItemKey, c *preview.RenderedContent) ClusterDiff {
	out := ClusterDiff{Cluster: m.name}
	fields, err := m.listDifferences(ctx, key, c)
	switch {
	case errors.Is(err, errAbsent):
		out.Absent = true
	case err != nil:
		out.Error = err.Error()
	}
	out.Fields = fields
	return out
}

var errAbsent = errors.New("the cluster does not have the object")

func (m memberObject) listDifferences(ctx context.Context, key atoll.ItemKey, c *preview.RenderedContent) ([]FieldDiff, error) {
	if c.Error != "" {
		return nil, errors.New("the hub cannot render the object, and the cluster keeps what it has: " + c.Error)
	}
	live, err := m.client.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errAbsent
	case err != nil:
		return nil, fmt.Errorf("read the object: %w", err)
	}
	wanted, err := wantedObject(key, c, live)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(wanted.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	after, err := m.client.Patch(ctx, key.Name, "application/apply-patch+yaml", body, metav1.PatchOptions{
		FieldManager: atoll.FieldManager, Force: new(true), DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, fmt.Errorf("apply the object as a dry run, which needs the right to patch it in the cluster: %w", err)
	}
	var out []FieldDiff
	managers := objectdiff.ManagersOf(live)
	for _, d := range objectdiff.Compare(objectdiff.WithoutServerFields(live), objectdiff.WithoutServerFields(after)) {
		f := FieldDiff{Path: d.Path, Live: d.Before, Wanted: d.After, Managers: managers.OfField(d.Path)}
		if key.IsSecret() {
			f.Live, f.Wanted, f.Hidden = nil, nil, true
		}
		out = append(out, f)
	}
	return out, nil
}

// wantedObject returns the object as the agent applies it over the live one.
func wantedObject(key atoll.ItemKey, c *preview.RenderedContent, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted := &unstructured.Unstructured{}
	if err := json.Unmarshal(c.Object, &wanted.Object); err != nil || wanted.Object == nil {
		return nil, fmt.Errorf("the hub answered with an object that is none: %w", err)
	}
	wanted.SetAPIVersion(c.APIVersion)
	wanted.SetKind(key.Kind)
	wanted.SetName(key.Name)
	wanted.SetNamespace(key.Namespace)
	wanted.SetUID(live.GetUID())
	known := script.NewInterpreters(c.Interpreters).ForReportTime(time.Now().Unix())
	if known.RetainsFields(schema.FromAPIVersionAndKind(c.APIVersion, key.Kind)) {
		kept, err := known.RetainFields(wanted, live)
		if err != nil {
			return nil, fmt.Errorf("keep the fields that the cluster sets: %w", err)
		}
		wanted = kept
	}
	if err := jsonpointer.RemoveMapFields(wanted.Object, c.MemberOwned); err != nil {
		return nil, fmt.Errorf("the hub answered with a path that is none: %w", err)
	}
	return wanted, nil
}
