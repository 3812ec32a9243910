package journal

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sizes of what a registry record may hold. Finer rules (a URL's host, a topic's wildcards, a
// rate's form) are the caller's.
const (
	maxTenantID   = 128
	maxText       = 256 // name, tier, reason
	maxURL        = 4096
	maxTopic      = 256
	maxTopics     = 256
	maxGrants     = 1024
	maxSecrets    = 8
	maxOutcomes   = 128
	maxOutcomeLen = 32
	maxMatch      = 16
)

// FieldError is bad input: which field of the record, and the rule that it breaks. It never
// contains the field's value.
type FieldError struct{ Field, Rule string }

// Error returns the field and the rule.
func (e *FieldError) Error() string { return e.Field + ": " + e.Rule }

var (
	tenantID       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._:@-]*$`)
	subscriptionID = regexp.MustCompile(fmt.Sprintf(`^%s[a-z2-7]{%d}$`, subscriptionIDPrefix, subscriptionIDDigits))
)

func checkTenant(t *Tenant) error {
	if len(t.ID) > maxTenantID || !tenantID.MatchString(t.ID) {
		return &FieldError{"id", fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 . _ : @ - and begin with a letter, a digit or _", maxTenantID)}
	}
	granted, _ := t.Granted()
	return firstError(
		checkText("name", t.Name, 0, maxText),
		checkText("tier", t.Tier, 0, maxText),
		checkList("grants", granted, maxGrants, maxTopic),
	)
}

func checkName(name string) error {
	if name != "" && (len(name) > maxTenantID || !tenantID.MatchString(name)) {
		return &FieldError{"name", fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 . _ : @ - and begin with a letter, a digit or _", maxTenantID)}
	}
	return nil
}

func checkSubscriptionID(id string) error {
	if !subscriptionID.MatchString(id) {
		return &FieldError{"id", fmt.Sprintf("must be %s and %d of a-z 2-7", subscriptionIDPrefix, subscriptionIDDigits)}
	}
	return nil
}

func checkSubscription(s *Subscription) error {
	return firstError(
		checkName(s.Name),
		checkText("url", s.URL, 1, maxURL),
		checkList("topics", s.Topics(), maxTopics, maxTopic),
		checkSecrets(s.Secrets),
		checkRequests(&s.Requests),
		checkMatch(s.Match()),
		checkOneOf("order", s.Order, "", OrderAll, OrderKey),
		checkOneOf("on_dead", s.OnDead, "", OnDeadStop),
		checkText("lane", s.Group, 0, maxText),
		checkText("limits.rate", s.Limits.Rate, 0, maxText),
		checkOutcomes(s.Outcomes),
		checkText("disabled", s.Disabled, 0, maxText),
	)
}

const (
	secretMin = 1 // bytes of a signing secret; imported ones have any length
	secretMax = 512
)

func checkSecrets(secrets [][]byte) error {
	if len(secrets) > maxSecrets {
		return &FieldError{"secrets", fmt.Sprintf("has %d entries, may have %d", len(secrets), maxSecrets)}
	}
	for i, b := range secrets {
		if len(b) < secretMin || len(b) > secretMax {
			return &FieldError{fmt.Sprintf("secrets[%d]", i), fmt.Sprintf("has %d bytes, must have %d to %d", len(b), secretMin, secretMax)}
		}
	}
	return nil
}

func checkOutcomes(outcomes map[string]string) error {
	if len(outcomes) > maxOutcomes {
		return &FieldError{"outcomes", fmt.Sprintf("has %d entries, may have %d", len(outcomes), maxOutcomes)}
	}
	for status, class := range outcomes {
		if err := firstError(checkText("outcomes", status, 1, maxOutcomeLen), checkText("outcomes", class, 1, maxOutcomeLen)); err != nil {
			return err
		}
	}
	return nil
}

func checkMatch(match map[string]string) error {
	if len(match) > maxMatch {
		return &FieldError{"match", fmt.Sprintf("has %d entries, may have %d", len(match), maxMatch)}
	}
	for name, value := range match {
		if err := firstError(checkText("match", name, 1, maxText), checkText("match", value, 0, maxText)); err != nil {
			return err
		}
	}
	return nil
}

func checkOneOf(field, s string, known ...string) error {
	if !slices.Contains(known, s) {
		return &FieldError{field, fmt.Sprintf("must be one of %q", known)}
	}
	return nil
}

func checkList(field string, list []string, most, longest int) error {
	if len(list) > most {
		return &FieldError{field, fmt.Sprintf("has %d entries, may have %d", len(list), most)}
	}
	for i, s := range list {
		if err := checkText(fmt.Sprintf("%s[%d]", field, i), s, 1, longest); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, s string, least, most int) error {
	switch {
	case len(s) < least:
		return &FieldError{field, "is empty"}
	case len(s) > most:
		return &FieldError{field, fmt.Sprintf("is %d bytes, may be %d", len(s), most)}
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return &FieldError{field, "contains control characters or invalid UTF-8"}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
