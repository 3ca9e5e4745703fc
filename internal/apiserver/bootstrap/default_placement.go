package bootstrap

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// ParseDefaultPlacement parses None, All, ClusterSet/NAME or ClusterPlacement/NAME. It returns nil
// for None and for an empty text.
func ParseDefaultPlacement(text string) (*v1alpha1.DefaultPlacement, error) {
	kind, name, named := strings.Cut(text, "/")
	d := &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementType(kind), Name: name}
	switch d.Type {
	case "", v1alpha1.DefaultPlacementNone:
		if !named {
			return nil, nil
		}
	case v1alpha1.DefaultPlacementAll:
		if !named {
			return d, nil
		}
	case v1alpha1.DefaultPlacementClusterSet, v1alpha1.DefaultPlacementClusterPlacement:
		if name != "" {
			return d, nil
		}
	}
	return nil, fmt.Errorf("a default placement is None, All, ClusterSet/NAME or ClusterPlacement/NAME, and not %q", text)
}

// installHubSettings writes the default placement of a new hub, and what an upgraded hub leaves to its
// administrator. HubSettings that exist stay.
func installHubSettings(ctx context.Context, c client.Client, d *v1alpha1.DefaultPlacement) error {
	settings := &v1alpha1.HubSettings{}
	settings.Name = v1alpha1.HubSettingsName
	settings.Spec = v1alpha1.HubSettingsSpec{
		DefaultPlacement: d, ChildPlacement: v1alpha1.ChildPlacementParent, EmptyNamespaces: v1alpha1.EmptyNamespacesCreate,
	}
	if err := c.Create(ctx, settings, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install the hub's settings: %w", err)
	}
	return nil
}
