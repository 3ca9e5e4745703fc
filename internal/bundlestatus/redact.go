package bundlestatus

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// redactSecretNames returns a row's report without the names of its Secrets: a reader of the Bundle
// may not always list Secrets.
func redactSecretNames(st *atoll.RowStatus) *atoll.RowStatus {
	trouble := func(it atoll.ItemStatus) bool { return it.Error || it.Health != atoll.Healthy }
	at := slices.IndexFunc(st.Items, func(it atoll.ItemStatus) bool { return it.Key.IsSecret() && trouble(it) })
	if at < 0 {
		return st
	}
	next := *st
	next.Items = slices.DeleteFunc(slices.Clone(st.Items), func(it atoll.ItemStatus) bool { return it.Key.IsSecret() })
	// Failed items go first, as in the agent's own words.
	for _, speaks := range []func(atoll.ItemStatus) bool{
		func(it atoll.ItemStatus) bool { return it.Error },
		func(it atoll.ItemStatus) bool { return st.State != atoll.RowFailed && trouble(it) },
	} {
		if i := slices.IndexFunc(next.Items, speaks); i >= 0 {
			it := next.Items[i]
			next.Reason, next.Message = it.Reason, it.Key.Kind+" "+it.Key.Name
			if it.Message != "" {
				next.Message += ": " + it.Message
			}
			return &next
		}
	}
	next.Reason, next.Message = "a Secret", string(st.Items[at].Reason)
	return &next
}
