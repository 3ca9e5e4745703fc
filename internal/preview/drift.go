package preview

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// Drifts are the objects that clusters only observe, and that differ from their templates or are missing.
type Drifts struct {
	// Objects by group, kind, namespace, name and cluster.
	Objects []DriftedObject `json:"objects"`
	// More objects have drift, and are not in Objects: the answer is full, or a cluster's report was. The
	// object of a query for one object may be among them.
	More int `json:"more,omitempty"`
	// NotCompared is the number of rows, each one Bundle in one connected cluster, whose cluster has not
	// compared all objects with their latest content yet.
	NotCompared int `json:"notCompared,omitempty"`
}

// DriftedObject is one object in one cluster, as the cluster reported it last.
type DriftedObject struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Cluster   string `json:"cluster"`
	// ID names this drift for `atoll drift correct`, under drift: Approve. It is empty where clusters only report.
	ID string `json:"id,omitempty"`
	// Approval of the correction by the cluster, which the cluster has not answered yet; nil without one.
	Approval *atoll.ApprovalOrigin `json:"approval,omitempty"`
	// Bundle of the object, as NAMESPACE/NAME, or NAME for a ClusterBundle.
	Bundle string `json:"bundle"`
	// Missing: the cluster does not have the object, since the time MissingSince.
	Missing      bool       `json:"missing,omitempty"`
	MissingSince *time.Time `json:"missingSince,omitempty"`
	// DifferentFields is the number of fields that differ. Fields are the first of them.
	DifferentFields int            `json:"differentFields,omitempty"`
	Fields          []DriftedField `json:"fields,omitempty"`
	// Outdated: the cluster has not compared the object with the latest content yet.
	Outdated bool `json:"outdated,omitempty"`
	// Disconnected: the cluster is not connected, so that the object may have changed.
	Disconnected bool `json:"disconnected,omitempty"`
}

// DriftedField is a field with another value than the template's.
type DriftedField struct {
	// Path is a JSON Pointer. An element of a list is named by its index, or as name=NAME.
	Path string `json:"path"`
	// Live and Wanted are the first bytes of the live and of the ordered value, as JSON. They are
	// empty where the field is not there, and for Secrets.
	Live   string `json:"live,omitempty"`
	Wanted string `json:"wanted,omitempty"`
	// Managers of the live value.
	Managers []string `json:"managers,omitempty"`
	// Since is when the cluster first reported the difference.
	Since *time.Time `json:"since,omitempty"`
}
