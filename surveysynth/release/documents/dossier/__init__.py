"""What a review board reads of a release before it is published: public facts alone."""
