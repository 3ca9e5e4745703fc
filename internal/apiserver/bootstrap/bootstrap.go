// Package bootstrap installs what a hub needs in its own API: CRDs, its namespace, the roles of
// users, the set of all clusters, and the placements of a new hub.
//
// Contract: Install returns when every CRD is served. An unchanged object costs no write, and
// what an administrator made of the set of all clusters stays. A repeated call after a failure
// completes the installation. The functions may run in several hubs of one store at a time.
package bootstrap

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// manifestFiles are what the hub needs of its own API besides the CRDs: its namespace
// and the roles by which ordinary users see and write Atoll's kinds.
//
//go:embed manifests/*.yaml
var manifestFiles embed.FS

// fieldOwner is the field manager of what the hub installs.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// InstallHubObjects applies CRDs and manifests, and waits until the CRDs are served. An unchanged object
// costs no write. A new hub gets the default placement; nil for none.
func InstallHubObjects(ctx context.Context, c client.Client, byDefault *v1alpha1.DefaultPlacement) error {
	for _, dir := range []fs.FS{crds.Files, manifestFiles} {
		if err := applyManifests(ctx, c, dir); err != nil {
			return err
		}
	}
	return installNewHubDefaults(ctx, c, byDefault)
}

// installNewHubDefaults writes what only a new hub gets: its default placement, its child placement, and then the set of all
// clusters that namespaces without bindings may place on. A hub that has the set is not new.
func installNewHubDefaults(ctx context.Context, c client.Client, byDefault *v1alpha1.DefaultPlacement) error {
	set := schedule.NewDefaultSet()
	err := c.Get(ctx, client.ObjectKeyFromObject(set), &v1alpha1.ClusterSet{})
	if apierrors.IsNotFound(err) {
		if err := installHubSettings(ctx, c, byDefault); err != nil {
			return err
		}
		err = c.Create(ctx, set, fieldOwner)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install the cluster set %s: %w", set.Name, err)
	}
	return nil
}

func applyManifests(ctx context.Context, c client.Client, dir fs.FS) error {
	objects, err := decodeManifests(dir)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := waitForCRD(ctx, c, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func decodeManifests(dir fs.FS) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(dir, path)
		if err != nil {
			return err
		}
		docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
		for {
			var o unstructured.Unstructured
			if err := docs.Decode(&o); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("decode %s: %w", path, err)
			}
			if len(o.Object) == 0 {
				continue
			}
			unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
			out = append(out, &o)
		}
	})
	return out, err
}

func waitForCRD(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is served: %w", name, err)
	}
	return nil
}

// PublishHubInfo writes, for clients of the API, the address that agents dial and the CA that
// they pin.
func PublishHubInfo(ctx context.Context, c client.Client, gateway, caHash string, caPEM []byte) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "hub-info", "namespace": atoll.SystemNamespace},
		"data":     map[string]any{"gateway": gateway, "caHash": caHash, "caCert": string(caPEM)},
	}}
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("publish the gateway's address: %w", err)
	}
	return nil
}
