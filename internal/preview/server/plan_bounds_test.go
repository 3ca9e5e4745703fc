package server

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
)

// A plan is refused before its items are rendered for every cluster of a large fleet.
func TestPlansOfTooManyItemsAreRefused(t *testing.T) {
	bundles := []binder.PreviewedBundle{{Content: &atoll.Content{Items: make([]atoll.Item, 300)}}, {}, {Content: &atoll.Content{Items: make([]atoll.Item, 200)}}}
	if err := checkPlanSize(bundles, maxPlannedItems/500); err != nil {
		t.Errorf("a plan at the bound: %v", err)
	}
	err := checkPlanSize(bundles, maxPlannedItems/500+1)
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "500 items for 10001 clusters") {
		t.Errorf("a plan over the bound: %v", err)
	}
}
