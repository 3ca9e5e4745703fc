package policycheck

import (
	"fmt"
	"slices"
	"strings"
)

// PropertyRefusal returns why a property that agents report may not be read; empty: it may be.
type PropertyRefusal func(name string) string

// RefuseUnlisted refuses the properties that are not in the list of the hub's admin.
func RefuseUnlisted(listed []string) PropertyRefusal {
	return func(name string) string {
		switch {
		case slices.Contains(listed, name):
			return ""
		case len(listed) == 0:
			return "is a property that agents report, and the hub's admin listed none that steer placement"
		}
		return fmt.Sprintf("is a property that the hub's admin did not list: placement is steered by %s", strings.Join(listed, ", "))
	}
}

// refuseAllProperties is for overrides, which read no property.
func refuseAllProperties(string) string {
	return "is a property that agents report, and overrides go by what is set on the hub: label the Cluster instead"
}
