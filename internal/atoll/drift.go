package atoll

import "slices"

// Drift is how an object that a member observes differs from its item.
type Drift struct {
	// Missing: the member does not have the object. Atoll would create it.
	Missing bool `json:"m,omitempty"`
	// Total is the number of fields that differ. Fields are the first MaxDriftFields of them.
	Total  int32        `json:"t,omitempty"`
	Fields []DriftField `json:"f,omitempty"`
	// Since is when the member first reported that the object is missing, in Unix seconds.
	Since int64 `json:"s,omitempty"`
	// ID names this drift for an approval, under ObserveForApproval. The member chooses it at random when the
	// differences change, and after it used an approval, so that an ID never returns.
	ID string `json:"i,omitempty"`
}

// DriftField is a field of a member's object with another value than the item's.
type DriftField struct {
	// Path is a JSON Pointer. An element of a list is named by its index, or as name=NAME.
	Path string `json:"p"`
	// Live is the member's value and Wanted the ordered one, as JSON, at most MaxDriftValue bytes
	// each. They are empty where the field is not there, and for Secrets.
	Live   string `json:"l,omitempty"`
	Wanted string `json:"w,omitempty"`
	// Managers of the live value, as its managedFields list them.
	Managers []string `json:"m,omitempty"`
	// Since is when the member first reported the difference, in Unix seconds.
	Since int64 `json:"s,omitempty"`
}

// The bounds of a Drift; of texts in bytes.
const (
	MaxDriftFields   = 8
	MaxDriftValue    = 64
	MaxDriftPath     = 256
	MaxDriftManagers = 3
	MaxDriftManager  = 64
)

// WithoutTimes returns a copy without times.
func (d *Drift) WithoutTimes() *Drift {
	if d == nil {
		return nil
	}
	c := *d
	c.Since, c.Fields = 0, slices.Clone(d.Fields)
	for i := range c.Fields {
		c.Fields[i].Since = 0
	}
	return &c
}
