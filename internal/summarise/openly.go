package summarise

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// openly gives what a row reports without a word about which Secrets it is about: who
// may see the Bundle may not always list Secrets.
func openly(st *atoll.RowStatus) *atoll.RowStatus {
	trouble := func(it atoll.ItemStatus) bool { return it.Error || it.Health != atoll.Healthy }
	at := slices.IndexFunc(st.Items, func(it atoll.ItemStatus) bool { return it.Key.IsSecret() && trouble(it) })
	if at < 0 {
		return st
	}
	next := *st
	next.Items = slices.DeleteFunc(slices.Clone(st.Items), func(it atoll.ItemStatus) bool { return it.Key.IsSecret() })
	// What failed goes first, as it does in the agent's own words.
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
	next.Reason, next.Message = "a Secret", st.Items[at].Reason
	return &next
}
