//! Builder methods that all model clients share.

/// Implements the builder methods for a model with a `client` field.
macro_rules! settings {
    ($model:ident) => {
        impl $model {
            /// The base URL of the API, including `/v1`; with or without a trailing slash.
            #[must_use]
            pub fn base_url(mut self, url: impl AsRef<str>) -> Self {
                self.client.base_url = url.as_ref().to_owned();
                self.client.reset_connections();
                self
            }

            /// The API key. A self-hosted server may need none.
            #[must_use]
            pub fn key(mut self, key: Secret) -> Self {
                self.client.key = Some(key);
                self
            }

            /// Timeout of one attempt; default: ten minutes.
            #[must_use]
            pub fn request_timeout(mut self, time: Duration) -> Self {
                self.client.request_timeout = time;
                self
            }

            /// Timeout of connecting; default: ten seconds.
            #[must_use]
            pub fn connect_timeout(mut self, time: Duration) -> Self {
                self.client.connect_timeout = time;
                self.client.reset_connections();
                self
            }

            /// Maximum time between two chunks of a streamed response; default: two minutes.
            #[must_use]
            pub fn idle_timeout(mut self, time: Duration) -> Self {
                self.client.idle_timeout = time;
                self
            }

            /// Maximum number of retries of a transient failure; default: four.
            #[must_use]
            pub fn retries(mut self, retries: u32) -> Self {
                self.client.retries = retries;
                self
            }

            /// Delay before the first retry, if the server sends no `Retry-After`; default: half a second. It doubles
            /// with each retry.
            #[must_use]
            pub fn first_wait(mut self, wait: Duration) -> Self {
                self.client.first_wait = wait;
                self
            }

            /// Checks the settings without sending a request.
            ///
            /// # Errors
            /// When the base URL or the key is invalid.
            pub fn check(&self) -> Result<(), SettingsError> {
                exchange::check(self, &self.client)
            }
        }
    };
}

pub(super) use settings;
