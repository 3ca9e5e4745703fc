package policycheck

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var percentage = regexp.MustCompile(`^[0-9]{1,3}%$`)

func checkRemovalBudget(b *intstr.IntOrString, at *field.Path) field.ErrorList {
	switch {
	case b == nil:
	case b.Type == intstr.Int && b.IntVal < 0:
		return field.ErrorList{field.Invalid(at, b.IntVal, "must not be negative")}
	case b.Type == intstr.String:
		n, err := strconv.Atoi(b.StrVal[:max(0, len(b.StrVal)-1)])
		if !percentage.MatchString(b.StrVal) || err != nil || n > 100 {
			return field.ErrorList{field.Invalid(at, b.StrVal, "must be a number or a percentage from 0% to 100%")}
		}
	}
	return nil
}

// checkBound checks a number or a percentage of at least so much.
func checkBound(b *intstr.IntOrString, least int, at *field.Path) field.ErrorList {
	if b == nil {
		return nil
	}
	n, most := int(b.IntVal), math.MaxInt32
	if b.Type == intstr.String {
		var err error
		if n, err = strconv.Atoi(b.StrVal[:max(0, len(b.StrVal)-1)]); err != nil || !percentage.MatchString(b.StrVal) {
			n = -1
		}
		most = 100
	}
	if n < least || n > most {
		return field.ErrorList{field.Invalid(at, b.String(), fmt.Sprintf("must be a number of at least %d, or a percentage from %d%% to 100%%", least, least))}
	}
	return nil
}
