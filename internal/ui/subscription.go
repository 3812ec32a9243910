package ui

// subscription is what the pages show of one. It has no place for a secret.
type subscription struct {
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	URL      string   `json:"url"`
	Topics   []string `json:"topics"`
	Paused   bool     `json:"paused"`
	Disabled string   `json:"disabled"`
	Order    string   `json:"order"`
}
